package host

import "syscall"

// An object in memory holds up to four descriptors. The rest are for
// connections, and for what is being opened and closed.
const (
	descriptorsPerObject = 5
	otherDescriptors     = 512
	filesForObjects      = 10_000
)

// maxResident is how many objects the process's limit of open files has room
// for beside so many sockets, at least a few.
func maxResident(sockets int) int {
	n := descriptors()
	return max((n-otherDescriptors-sockets)/descriptorsPerObject, n/descriptorsPerObject/4, 8)
}

// maxSockets is how many sockets may have a part of the limit: what is beyond
// filesForObjects, at least a quarter.
func maxSockets() int { return max(descriptors()/4, descriptors()-filesForObjects, 8) }

// descriptors is the process's limit of open files.
func descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 4 * descriptorsPerObject * 1000
	}
	const most = 1 << 20 // "unlimited" must not overflow
	return int(min(l.Cur, most))
}
