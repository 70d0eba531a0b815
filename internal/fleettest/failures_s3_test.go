package fleettest

import (
	"net/http"
	"sync"
	"testing"
)

const (
	labFiles = "bucket:LAB_FILES"
	blobs    = "object-store"
)

// stored in S3: begins a fault of the object store's requests.
func s3Fault(choose func(*http.Request) ObjectFault) func(*failing) func() {
	return func(x *failing) func() {
		x.objects.SetFault(choose)
		return func() { x.objects.SetFault(nil) }
	}
}

// begins reports whether a request begins an upload in parts. When its answer is
// lost nobody knows the upload's id.
func begins(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploads")
}

// firstOfEach has a fault befall the first request for each key.
func firstOfEach(f ObjectFault) func(*failing) func() {
	return func(x *failing) func() {
		var mu sync.Mutex
		seen := map[string]bool{}
		return s3Fault(func(r *http.Request) ObjectFault {
			mu.Lock()
			defer mu.Unlock()
			if seen[r.URL.Path] {
				return NoFault
			}
			seen[r.URL.Path] = true
			return f
		})(x)
	}
}

// s3Failures are those of an object store in S3.
var s3Failures = []failure{
	{
		name: "busy once", title: "The object store is busy for a moment",
		happens: "It answers 503 or `SlowDown` once.",
		alert:   "None.",
		todo:    "Nothing: requests are repeated up to three times, with pauses.",
		arm:     firstOfEach(Unavailable),
		asks: []ask{
			{putSmall, []answer{okay}, []string{trips(labFiles, "ok")}, all},
			{putNew, []answer{okay}, nil, all},
			{putLarge, []answer{okay}, nil, all},
			{getBody, []answer{okay}, nil, reads},
			{listKeys, []answer{okay}, nil, reads},
			{deleteKey, []answer{okay}, nil, all},
			{largeEvent, []answer{okay}, []string{trips(blobs, "ok")}, all},
		},
	},
	{
		name: "503", title: "The object store answers 503",
		happens: "It is down, overloaded or limits the rate of requests.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`; after 30 s readiness, `DwkNoReadyReplica`.",
		todo:    "Look at the store and its limits. Objects go on, but for events that need an entry over `objects.inline_limit`. Uploads in parts that failed are ended when it is back.",
		arm:     s3Fault(Always(Unavailable)),
		asks: []ask{
			{putSmall, []answer{refused}, []string{trips(labFiles, "refused")}, nothing},
			{putNew, []answer{refused}, nil, nothing},
			{putLarge, []answer{refused, broken}, nil, nothing},
			{getBody, []answer{refused}, nil, reads},
			{listKeys, []answer{refused}, nil, reads},
			{deleteKey, []answer{refused}, nil, nothing},
			{largeEvent, []answer{refused}, []string{trips(blobs, "refused"), events("object.commit.fenced")}, nothing},
			{writeEvent, []answer{okay}, nil, all},
		},
	},
	{
		name: "503 within an upload", title: "The object store fails within an upload in parts",
		happens: "It has taken some of the parts of a large body, and no more.",
		alert:   "`DwkStoreFailing`.",
		todo:    "Nothing: the key keeps what it had, and the upload is ended. One that a crash of the replica left is ended at a replica's start when it is a day old.",
		arm: s3Fault(func(r *http.Request) ObjectFault {
			if r.URL.Query().Get("partNumber") == "3" {
				return Unavailable
			}
			return NoFault
		}),
		asks: []ask{
			{putLarge, []answer{refused, broken}, []string{trips(labFiles, "refused")}, nothing},
			{putSmall, []answer{okay}, nil, all},
		},
	},
	{
		name: "silent", title: "The object store does not answer", hasty: true,
		happens: "Nothing comes for longer than `object_store.timeout`.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`; after 30 s readiness, `DwkNoReadyReplica`.",
		todo:    "Look at the store and at the network. What was answered 504 may have been stored.",
		arm:     s3Fault(Always(Silent)),
		asks: []ask{
			{putSmall, []answer{unknown}, []string{trips(labFiles, "unknown")}, nothing},
			{putNew, []answer{unknown}, nil, nothing},
			{getBody, []answer{refused}, []string{trips(labFiles, "refused")}, reads},
			{listKeys, []answer{refused}, nil, reads},
			{deleteKey, []answer{unknown}, nil, nothing},
			{largeEvent, []answer{refused}, []string{events("object.commit.fenced")}, nothing},
			{writeEvent, []answer{okay}, nil, all},
		},
	},
	{
		name: "requests cut", title: "Connections to the object store break before it has got the request",
		happens: "The network or a proxy cuts connections. A replica cannot tell this from an answer that was lost.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`; after 30 s readiness, `DwkNoReadyReplica`.",
		todo:    "Mend the network. What was answered 504 may have been stored.",
		arm:     s3Fault(Always(CutUndone)),
		asks: []ask{
			{putSmall, []answer{unknown}, []string{trips(labFiles, "unknown")}, nothing},
			{putNew, []answer{unknown}, nil, nothing},
			{putLarge, []answer{refused, broken}, nil, nothing},
			{getBody, []answer{refused}, nil, reads},
			{listKeys, []answer{refused}, nil, reads},
			{deleteKey, []answer{unknown}, nil, nothing},
			{largeEvent, []answer{refused}, []string{events("object.commit.fenced")}, nothing},
		},
	},
	{
		name: "answers cut", title: "Connections to the object store break before its answer has come",
		happens: "It does what it is asked, and its answers are lost.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`; after 30 s readiness, `DwkNoReadyReplica`.",
		todo:    "Mend the network. What was answered 504 has been stored here. An upload whose beginning was not answered takes space until a replica starts that finds it a day old.",
		arm: s3Fault(func(r *http.Request) ObjectFault {
			if begins(r) {
				return NoFault
			}
			return CutDone
		}),
		asks: []ask{
			{putSmall, []answer{unknown}, []string{trips(labFiles, "unknown")}, all},
			{putNew, []answer{unknown}, nil, all},
			{putLarge, []answer{refused, broken}, nil, nothing},
			{getBody, []answer{refused}, nil, reads},
			{listKeys, []answer{refused}, nil, reads},
			{deleteKey, []answer{unknown}, nil, all},
			{largeEvent, []answer{refused}, []string{events("object.commit.fenced")}, nothing},
		},
	},
	{
		name: "upload's end cut", title: "The answer to the end of an upload is lost",
		happens: "All parts of a large body are there, and the request that makes them one is executed; its first answer is lost.",
		alert:   "None.",
		todo:    "Nothing: the replica asks again, and sees that it was done.",
		arm: func(x *failing) func() {
			first := once()
			return s3Fault(func(r *http.Request) ObjectFault {
				if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") && first() {
					return CutDone
				}
				return NoFault
			})(x)
		},
		asks: []ask{{putLarge, []answer{okay}, []string{trips(labFiles, "ok")}, all}},
	},
	{
		name: "bodies cut", title: "A body from the object store breaks off",
		happens: "A connection breaks in the midst of an answer.",
		alert:   "`DwkStoreFailing`.",
		todo:    "Mend the network. A client sees its own connection cut: what it has got is never taken for a whole body.",
		arm: s3Fault(func(r *http.Request) ObjectFault {
			if r.Method == http.MethodGet {
				return CutAnswer
			}
			return NoFault
		}),
		asks: []ask{
			{getBody, []answer{broken}, []string{trips(labFiles, "refused"), `dwk_http_requests_total{mount="/lab",status="200"}`}, reads},
			{getPart, []answer{broken}, nil, reads},
			{listKeys, []answer{refused}, nil, reads},
			{putSmall, []answer{okay}, nil, all},
		},
	},
	{
		name: "wrong length", title: "The object store answers with fewer bytes than were asked for",
		happens: "A cache or proxy in between changes bodies. A whole body that is shorter than it was put cannot be told from one that was put like that; the log entries of objects have checksums.",
		alert:   "`DwkStoreFailing`; `DwkLogDamaged` when an object cannot be put together.",
		todo:    "Take away what is in between. `dwk audit --deep` looks at all objects, `dwk probe --only bucket,object-store` at ranges.",
		arm: s3Fault(func(r *http.Request) ObjectFault {
			if r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "" {
				return OtherRange
			}
			return NoFault
		}),
		asks: []ask{
			{getPart, []answer{refused}, []string{trips(labFiles, "refused")}, reads},
			{syncEvent, []answer{refused}, []string{events("object.sync.failed")}, reads},
			{putSmall, []answer{okay}, nil, all},
		},
	},
	{
		name: "denied", title: "The object store denies access",
		happens: "The keys were revoked or have expired, the rights of a policy were taken away, or a machine's clock is wrong.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`; after 30 s readiness, `DwkNoReadyReplica`.",
		todo:    "Correct the keys or rights. Keys from files and from the machine's role are read again each minute; others need a restart. A read needs the right to list, else a missing key looks like a denial.",
		arm:     s3Fault(Always(ObjectDenied)),
		asks: []ask{
			{putSmall, []answer{refused}, []string{trips(labFiles, "refused")}, nothing},
			{putNew, []answer{refused}, nil, nothing},
			{putLarge, []answer{refused, broken}, nil, nothing},
			{getBody, []answer{refused}, nil, reads},
			{listKeys, []answer{refused}, nil, reads},
			{deleteKey, []answer{refused}, nil, nothing},
			{largeEvent, []answer{refused}, []string{events("object.commit.fenced")}, nothing},
			{writeEvent, []answer{okay}, nil, all},
		},
	},
	{
		name: "no bucket", title: "The bucket is missing",
		happens: "It was deleted, or the URL is wrong. At its start a replica names it and exits.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`; after 30 s readiness, `DwkNoReadyReplica`.",
		todo:    "Restore the bucket; `dwk audit` names the log entries that are missing. A new, empty one is refused by the next replica that starts only when it belongs to another store set: check before you make one.",
		arm:     s3Fault(Always(NoBucket)),
		asks: []ask{
			{putSmall, []answer{refused}, []string{trips(labFiles, "refused")}, nothing},
			{putNew, []answer{refused}, nil, nothing},
			{putLarge, []answer{refused, broken}, nil, nothing},
			{getBody, []answer{refused}, nil, reads},
			{listKeys, []answer{refused}, nil, reads},
			{deleteKey, []answer{refused}, nil, nothing},
			{largeEvent, []answer{refused}, []string{events("object.commit.fenced")}, nothing},
			{writeEvent, []answer{okay}, nil, all},
		},
	},
}

// Whatever befalls the object store, clients are told the truth, it is counted,
// and nothing is half done.
func TestObjectStoreFailures(t *testing.T) {
	t.Parallel()
	o := startObjectStore(t)
	f := New(t, Wire, o.Env()...)
	x := &failing{t: t, f: f, patient: f.Start(patientEnv...), hasty: f.Start(hastyEnv...), objects: o, other: f.Start()}
	x.run(t, s3Failures)
}
