# Lets the suite run with a distribution's packages instead of the gems of its
# lock file, and its cases in the order of their definition, on which later ones
# rest.
module Bundler
  def self.require(*) = nil
end
$LOADED_FEATURES << "bundler.rb"

%w[json rest-client colored minitest].each { |name| require name }
MiniTest = Minitest unless defined?(MiniTest)

module InOrder
  def shuffle(*) = self
  def reject(&block) = super.extend(InOrder)
end

class << Minitest::Runnable
  alias unordered_runnables runnables
  def runnables = unordered_runnables.extend(InOrder)
end
