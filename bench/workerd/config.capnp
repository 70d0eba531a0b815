# One worker with SQLite objects on local disk. The socket's address and the
# directory come from the command line. Its objects stay in memory, as dwk's do:
# by default they go after ten seconds, and what it costs to open one again is not
# what is compared.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "objects", disk = (writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);

const worker :Workerd.Worker = (
  modules = [(name = "counter.mjs", esModule = embed "counter.mjs")],
  compatibilityDate = "2026-11-01",
  durableObjectNamespaces = [(className = "Counter", uniqueKey = "counter", enableSql = true, preventEviction = true)],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [(name = "COUNTERS", durableObjectNamespace = "Counter")],
);
