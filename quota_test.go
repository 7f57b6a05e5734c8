package ratelimit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/storage/memory"
)

const maxNumber = 1<<53 - 1

func TestValidate(t *testing.T) {
	const minute, us = time.Minute, time.Microsecond
	for _, q := range []ratelimit.Quota{
		{Limit: 0, Window: minute},
		{Limit: maxNumber, Window: minute},
		{Limit: 1, Window: time.Millisecond},
		{Limit: 1, Window: 1 << 51 * us, Granularity: 1 << 39 * us},
		{Limit: 1, Window: 4096 * time.Millisecond, Granularity: time.Millisecond},
		{Limit: 1, Window: 1_000_003 * us, Granularity: 1_000_003 * us},
		{Limit: 123_457, Window: 24 * time.Hour, Burst: 123_457},
		{Limit: 10, Window: minute, Burst: 5},
		ratelimit.PerSecond(3), ratelimit.PerMinute(3), ratelimit.PerHour(3), ratelimit.PerDay(3),
	} {
		require.NoError(t, q.Validate(), "%+v", q)
	}
	for says, q := range map[string]ratelimit.Quota{
		"Limit -1 is negative":                                                             {Limit: -1, Window: minute},
		"Limit 9007199254740992 is above":                                                  {Limit: maxNumber + 1, Window: minute},
		"Window 0s is under 1ms":                                                           {Limit: 1},
		"Window -1s is under 1ms":                                                          {Limit: 1, Window: -time.Second},
		"Window 999µs is under 1ms":                                                        {Limit: 1, Window: 999 * us},
		"Window 1.0000001s is not a whole number of µs":                                    {Limit: 1, Window: time.Second + 100},
		"Window 625499h56m53.685249s is above":                                             {Limit: 1, Window: (1<<51)*us + 1000},
		"Granularity -1s is negative":                                                      {Limit: 1, Window: minute, Granularity: -time.Second},
		"Granularity 1.5µs is not a whole number of µs":                                    {Limit: 1, Window: 3 * time.Millisecond, Granularity: 1500},
		"Granularity 7s does not divide Window 1m0s":                                       {Limit: 1, Window: minute, Granularity: 7 * time.Second},
		"Granularity 2m0s does not divide Window 1m0s":                                     {Limit: 1, Window: minute, Granularity: 2 * minute},
		"Granularity 100.0003ms (the default, Window/10) does not divide Window 1.000003s": {Limit: 1, Window: 1_000_003 * us},
		"Granularity 1ms cuts Window 4.097s into 4097 granules, at most 4096":              {Limit: 1, Window: 4097 * time.Millisecond, Granularity: time.Millisecond},
		"Burst -1 is negative":                                                             {Limit: 1, Window: minute, Burst: -1},
		"Burst 9007199254740992 is above":                                                  {Limit: 1, Window: minute, Burst: maxNumber + 1},
		"Burst 94906266 is too large for a token":                                          {Limit: 94_906_267, Window: minute, Burst: 94_906_266},
		"Burst 9007199254740991 is too large for ":                                         {Limit: 1, Window: minute, Burst: maxNumber},
	} {
		err := q.Validate()
		require.ErrorIs(t, err, ratelimit.ErrInvalidQuota, says)
		require.ErrorContains(t, err, says)
	}
	require.EqualError(t, ratelimit.Quota{Name: "daily", Limit: -1, Window: minute}.Validate(),
		`ratelimit: invalid quota "daily": Limit -1 is negative`)
}

// A limit that is also the burst must fit a token bucket, and only that.
func TestValidateTokenBucket(t *testing.T) {
	huge := []ratelimit.RequestedQuota{{Prefix: "a", Requested: 1, Quotas: []ratelimit.Quota{ratelimit.PerMinute(maxNumber)}}}
	_, err := ratelimit.NewTokenBucket(memory.New()).CheckAndUseQuotas(t.Context(), huge)
	require.ErrorIs(t, err, ratelimit.ErrInvalidQuota)
	require.ErrorContains(t, err, "Burst 9007199254740991 is too large for a token bucket of 9007199254740991 per 1m0s, at most 1 ")
	_, err = ratelimit.NewSlidingWindow(memory.New()).CheckAndUseQuotas(t.Context(), huge)
	require.NoError(t, err)
}

func TestGranules(t *testing.T) {
	q := ratelimit.Quota{Limit: 1, Window: 30 * time.Second, Granularity: 10 * time.Second}
	require.Equal(t, []int64{12, 11, 10}, slices.Collect(q.Granules(time.Unix(129, 999_999_999))))
	require.Equal(t, []int64{13, 12, 11}, slices.Collect(q.Granules(time.Unix(130, 0))))
	require.Equal(t, []int64{-1, -2, -3}, slices.Collect(q.Granules(time.Unix(-1, 0))))
	for newest := range q.Granules(time.Unix(130, 0)) {
		require.EqualValues(t, 13, newest)
		break
	}
	require.Empty(t, slices.Collect(ratelimit.Quota{}.Granules(time.Unix(130, 0))))
	require.Len(t, slices.Collect(ratelimit.PerMinute(1).Granules(time.Unix(130, 0))), 10)
}
