// Package events releases the tokens of resources that have ended, when the cloud
// says so. The events are JSON objects with a source, a detail-type and details, as
// Amazon EventBridge (CloudWatch Events) sends them:
//
//	{"id": "…", "source": "aws.emr", "detail-type": "EMR Cluster State Change",
//	 "detail": {"clusterId": "j-1YONHTCP3YZKC", "state": "TERMINATED"}}
//
// A Processor knows the events of one source: which of them tell of an end, and
// where the resource's id stands. A Manager finds the processor of an event, tests
// the event, and releases; it is an http.Handler too.
//
//	manager, err := events.NewManager([]events.Processor{{
//		Source:     "aws.emr",
//		DetailType: "EMR Cluster State Change",
//		Match:      events.Is("detail.state", "TERMINATED", "TERMINATED_WITH_ERRORS"),
//		IDPath:     "detail.clusterId",
//		Pool:       clusters,
//	}})
//	http.Handle("/events", manager)
//
// # Paths
//
// A path is the keys on the way to a value, with dots between them: detail.state. A
// dot or a backslash in a key is written with a backslash before it: detail.k8s\.io.
// Where the way leads through a list, it goes on in each of its elements, so that a
// path can have several values: detail.instances.id. A null is no value.
//
// # Delivered twice
//
// To release again changes nothing, unless the same id was bound anew in between.
// So a Manager remembers the ids of the last events that released something, and
// does not process those again; of one that failed for some resources, which it has
// released. That is bounded, and holds within this process: where ids of resources are
// used again, and several processes take events, put something into the id that is new
// each time.
package events
