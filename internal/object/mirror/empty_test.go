package mirror

import (
	"fmt"

	"github.com/davidwkeith/dwk/internal/clock"
)

// encodeEmpty returns the entry of a commit that changed no page of a database
// which has the given size, as other writers of this format make them.
func encodeEmpty(before Position, txid uint64, pageSize, pages uint32) ([]byte, error) {
	if before.Checksum == 0 || txid <= before.TXID || before.TXID == 0 {
		return nil, fmt.Errorf("encode commit %d after %s: there is no database", txid, before)
	}
	var b appender
	e := newEncoder(&b)
	defer e.release()
	h := Header{PageSize: pageSize, Pages: pages, MinTXID: before.TXID + 1, MaxTXID: txid, Timestamp: clock.UnixMilli(), Pre: before.Checksum}
	if err := e.header(h); err != nil {
		return nil, err
	}
	if err := e.close(before.Checksum); err != nil {
		return nil, err
	}
	return b, nil
}
