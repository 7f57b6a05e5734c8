package dynamostore

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/granule-limits/ratelimit/storage"
)

// once switches the client's own retries off: it does not know which of our
// requests may be sent again.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// ask sends one request. What is not answered in good time counts as lost, while
// there is time left to find out what came of it.
func (s *Store) ask(ctx context.Context, request func(ctx context.Context) error) *failure {
	if ctx.Err() != nil {
		return &failure{outcome: unsent, err: ctx.Err()}
	}
	wait := s.timeout / 3
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := request(short)
	if err == nil {
		return nil
	}
	f := failureOf(err)
	if short.Err() != nil && ctx.Err() == nil {
		f.err = fmt.Errorf("no answer within %v, a third of dynamostore.WithTimeout: %w", wait, err)
	}
	return f
}

// load takes the items as they are at one moment.
func (s *Store) load(ctx context.Context, items []*item) *failure {
	found := make([]attributes, len(items))
	f := s.ask(ctx, func(ctx context.Context) (err error) {
		if len(items) == 1 {
			found[0], err = s.get(ctx, items[0])
		} else {
			err = s.getAll(ctx, items, found)
		}
		return err
	})
	if f != nil {
		return f
	}
	for i, it := range items {
		if err := it.take(found[i]); err != nil {
			return &failure{outcome: refused, err: err}
		}
	}
	return nil
}

func (s *Store) get(ctx context.Context, it *item) (attributes, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &s.table,
		Key:            keyAttributes(it.key),
		ConsistentRead: aws.Bool(true),
	}, once)
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}

func (s *Store) getAll(ctx context.Context, items []*item, found []attributes) error {
	in := &dynamodb.TransactGetItemsInput{}
	for _, it := range items {
		in.TransactItems = append(in.TransactItems, types.TransactGetItem{Get: &types.Get{TableName: &s.table, Key: keyAttributes(it.key)}})
	}
	out, err := s.client.TransactGetItems(ctx, in, once)
	if err != nil {
		return err
	}
	if len(out.Responses) != len(items) {
		return fmt.Errorf("the answer has %d items, not %d", len(out.Responses), len(items))
	}
	for i := range found {
		found[i] = out.Responses[i].Item
	}
	return nil
}

// A write saves items that are still as they were loaded. It can be sent any
// number of times, and takes effect once at most: whatever it changes has another
// version from then on. DynamoDB knows a transaction again by its id, for ten
// minutes, and says once more that it took effect, whatever the items are by now.
type write struct {
	id    writeID
	items []*item                           // that it changes
	put   *dynamodb.PutItemInput            // of the only item
	many  *dynamodb.TransactWriteItemsInput // of several
}

// newWrite is of those items that were changed, on condition of all. It is
// nothing if none was.
func (s *Store) newWrite(items []*item) (*write, error) {
	w := &write{id: newWriteID()}
	var actions []types.TransactWriteItem
	for _, it := range items {
		expression, names, values := it.condition()
		if !it.changed() {
			actions = append(actions, types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
				TableName: &s.table, Key: keyAttributes(it.key),
				ConditionExpression: expression, ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			}})
			continue
		}
		w.items = append(w.items, it)
		a, err := it.attributes(w.id)
		if err != nil {
			return nil, err
		}
		actions = append(actions, types.TransactWriteItem{Put: &types.Put{
			TableName: &s.table, Item: a,
			ConditionExpression: expression, ExpressionAttributeNames: names, ExpressionAttributeValues: values,
		}})
	}
	switch {
	case len(w.items) == 0:
		return nil, nil
	case len(actions) > 1:
		w.many = &dynamodb.TransactWriteItemsInput{TransactItems: actions, ClientRequestToken: w.id.token()}
	default:
		p := actions[0].Put
		w.put = &dynamodb.PutItemInput{
			TableName: p.TableName, Item: p.Item,
			ConditionExpression: p.ConditionExpression, ExpressionAttributeNames: p.ExpressionAttributeNames, ExpressionAttributeValues: p.ExpressionAttributeValues,
			// Who comes second need not load again.
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}
	}
	return w, nil
}

func (s *Store) send(ctx context.Context, w *write) *failure {
	return s.ask(ctx, func(ctx context.Context) (err error) {
		if w.put != nil {
			_, err = s.client.PutItem(ctx, w.put, once)
		} else {
			_, err = s.client.TransactWriteItems(ctx, w.many, once)
		}
		return err
	})
}

// newForgetting empties the items of keys, whatever they are. They are left for the
// TTL to take: if they went at once, the first write of a new counter, late, could
// hold after all. It is a transaction for one key too, as that has a token: what of
// it is late does not wipe out what was charged since.
func (s *Store) newForgetting(keys []storage.Key) (*write, error) {
	w := &write{id: newWriteID()}
	w.many = &dynamodb.TransactWriteItemsInput{ClientRequestToken: w.id.token()}
	now := time.Now().UnixMicro()
	seen := make(map[storage.Key]bool, len(keys))
	for i := range keys {
		if seen[keys[i]] {
			continue
		}
		seen[keys[i]] = true
		it := &item{key: s.keyOf(&keys[i])}
		it.keep(now)
		a, _ := it.attributes(w.id) // no error: what is empty is not too large
		w.many.TransactItems = append(w.many.TransactItems, types.TransactWriteItem{Put: &types.Put{TableName: &s.table, Item: a}})
	}
	if len(seen) > maxCounters {
		return nil, tooMany(len(seen))
	}
	return w, nil
}
