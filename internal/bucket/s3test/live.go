package s3test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// liveURL names a bucket at a live store, or a part of one; the variables beside
// it have the other settings.
const liveURL = "DWK_TEST_LIVE_S3_URL"

// A LiveStore is a part of a bucket that the tests of one run have.
type LiveStore struct{ URL, Region, PathStyle, Access, Secret string }

// IsLive reports whether a live store is named.
func IsLive() bool { return os.Getenv(liveURL) != "" }

// Live is a part of the bucket that DWK_TEST_LIVE_S3_URL names, under a prefix that no
// other run has, else the test is skipped. Who uses it empties it.
func Live(t testing.TB) LiveStore {
	t.Helper()
	if !IsLive() {
		t.Skip(liveURL + " names no bucket")
	}
	return LiveStore{
		URL: strings.TrimRight(os.Getenv(liveURL), "/") + "/dwk-test-" + uuid.NewString(), Region: os.Getenv("DWK_TEST_LIVE_S3_REGION"),
		PathStyle: os.Getenv("DWK_TEST_LIVE_S3_PATH_STYLE"), Access: os.Getenv("DWK_TEST_LIVE_S3_ACCESS_KEY"), Secret: os.Getenv("DWK_TEST_LIVE_S3_SECRET_KEY"),
	}
}
