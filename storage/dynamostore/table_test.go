package dynamostore_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/dynamostore"
)

func TestCreateTable(t *testing.T) {
	f, client := startFront(t) // which has made it once
	f.breaks(nil)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table), "a second time")
	require.Zero(t, f.count("UpdateTimeToLive"), "it has its TTL")
	out, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String(table)})
	require.NoError(t, err)
	require.Equal(t, types.BillingModePayPerRequest, out.Table.BillingModeSummary.BillingMode)
	ttl, err := client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: aws.String(table)})
	require.NoError(t, err)
	require.Equal(t, "expires", aws.ToString(ttl.TimeToLiveDescription.AttributeName))
	require.Equal(t, types.TimeToLiveStatusEnabled, ttl.TimeToLiveDescription.TimeToLiveStatus)
}

func TestCreateTableRefuses(t *testing.T) {
	f, client := startFront(t)
	refused := func(name, says string) {
		t.Helper()
		err := dynamostore.CreateTable(t.Context(), client, name)
		require.ErrorIs(t, err, storage.ErrMisconfigured)
		require.ErrorContains(t, err, says)
	}
	for name, key := range map[string]types.AttributeDefinition{
		"other-name": {AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS},
		"other-type": {AttributeName: aws.String("key"), AttributeType: types.ScalarAttributeTypeB},
	} {
		_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: aws.String(name), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{key},
			KeySchema:            []types.KeySchemaElement{{AttributeName: key.AttributeName, KeyType: types.KeyTypeHash}},
		})
		require.NoError(t, err)
		refused(name, `its key is not a partition key "key" of type S alone`)
	}
	_, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
		TableName:               aws.String(table),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)},
	})
	require.NoError(t, err)
	refused(table, `its TTL attribute is "ttl", not "expires"`)

	f.breaks(times(always, "CreateTable", fault{code: "AccessDeniedException"}))
	refused("fresh", "AccessDeniedException")
	refused("", "the table has no name")
	require.ErrorIs(t, dynamostore.CreateTable(t.Context(), nil, table), storage.ErrMisconfigured)
}
