package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/granule-limits/ratelimit/storage"
)

// tableTimeout bounds the wait for a table, where the context does not.
const tableTimeout = 5 * time.Minute

// CreateTable makes a table for a Store, billed by request, with the TTL that
// deletes old counters, and waits until it can be used: seconds, at most five
// minutes. A table that is there already is kept, and gets the TTL if it has
// none; if it has another key, or another TTL, that is ErrMisconfigured. It is
// for tools and tests: a service needs no permission to make tables.
func CreateTable(ctx context.Context, client *dynamodb.Client, name string) error {
	if client == nil || name == "" {
		return fmt.Errorf("%w: dynamostore.CreateTable: the client is nil or the table has no name", storage.ErrMisconfigured)
	}
	steps := []func(context.Context, *dynamodb.Client, string) error{createTable, awaitTable, enableTTL}
	for _, step := range steps {
		if err := step(ctx, client, name); err != nil {
			return fmt.Errorf("%w: dynamostore.CreateTable: table %q: %w", tableError(err), name, err)
		}
	}
	return nil
}

func tableError(err error) error {
	if errors.Is(err, errOtherTable) || failureOf(err).outcome == refused {
		return storage.ErrMisconfigured
	}
	return storage.ErrUnavailable
}

func createTable(ctx context.Context, client *dynamodb.Client, name string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            &name,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(attrKey), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(attrKey), KeyType: types.KeyTypeHash}},
		BillingMode:          types.BillingModePayPerRequest,
	})
	var there *types.ResourceInUseException
	if errors.As(err, &there) {
		return nil
	}
	return err
}

// errOtherTable: the table was made for something else.
var errOtherTable = errors.New("the table was made for something else")

func awaitTable(ctx context.Context, client *dynamodb.Client, name string) error {
	out, err := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 500*time.Millisecond, 5*time.Second
	}).WaitForOutput(ctx, &dynamodb.DescribeTableInput{TableName: &name}, tableTimeout)
	if err != nil {
		return err
	}
	t := out.Table
	for _, a := range t.AttributeDefinitions {
		if aws.ToString(a.AttributeName) == attrKey && a.AttributeType == types.ScalarAttributeTypeS &&
			len(t.KeySchema) == 1 && aws.ToString(t.KeySchema[0].AttributeName) == attrKey {
			return nil
		}
	}
	return fmt.Errorf("%w: its key is not a partition key %q of type S alone", errOtherTable, attrKey)
}

func enableTTL(ctx context.Context, client *dynamodb.Client, name string) error {
	on, err := hasTTL(ctx, client, name)
	if on || err != nil {
		return err
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrExpires), Enabled: aws.Bool(true)},
	})
	if err != nil {
		// Another process may have been faster, and then this one is refused.
		if on, _ := hasTTL(ctx, client, name); on {
			return nil
		}
	}
	return err
}

func hasTTL(ctx context.Context, client *dynamodb.Client, name string) (bool, error) {
	out, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &name})
	if err != nil {
		return false, err
	}
	ttl := out.TimeToLiveDescription
	if ttl == nil || ttl.TimeToLiveStatus != types.TimeToLiveStatusEnabled && ttl.TimeToLiveStatus != types.TimeToLiveStatusEnabling {
		return false, nil
	}
	if attribute := aws.ToString(ttl.AttributeName); attribute != attrExpires {
		return false, fmt.Errorf("%w: its TTL attribute is %q, not %q", errOtherTable, attribute, attrExpires)
	}
	return true, nil
}
