package host

import "syscall"

// An object in memory holds up to four descriptors. The rest are for
// connections, and for what is being opened and closed.
const (
	descriptorsPerObject = 5
	otherDescriptors     = 512
)

// maxResident is how many objects the process's limit of open files has room
// for, at least a few.
func maxResident() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1000
	}
	const most = 1 << 20 // "unlimited" must not overflow
	n := int(min(l.Cur, most))
	return max((n-otherDescriptors)/descriptorsPerObject, n/descriptorsPerObject/4, 8)
}
