package main

import (
	"context"
	"os"
)

func Example() {
	if err := run(context.Background(), os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// An organisation may use 100 units in 30 seconds, and no more than 10 of them
	// in 3 seconds. Each line is one request. It is granted what fits both quotas, and
	// where that is less than it asked for, the line names the quota that was reached
	// and says when the same request would be granted in full.
	//
	//     time   requested   granted   remaining       reached   retry after
	//     0.0s           4         4           6             -             -
	//     0.5s           8         6           0     10 per 3s          2.5s
	//     1.0s          10         0           0     10 per 3s          2.0s
	//     3.0s          10        10           0             -             -
	//     6.0s          10        10           0             -             -
	//     9.0s          10        10           0             -             -
	//    12.0s          10        10           0             -             -
	//    15.0s          10        10           0             -             -
	//    18.0s          10        10           0             -             -
	//    21.0s          10        10           0             -             -
	//    24.0s          10        10           0             -             -
	//    27.0s           6         6           4             -             -
	//    27.5s           8         4           0   100 per 30s          2.5s
	//    28.0s           1         0           0   100 per 30s          2.0s
	//    30.0s           1         1           9             -             -
}
