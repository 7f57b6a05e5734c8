package dynamostore_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/storage/dynamostore"
)

// A front stands before a dynalite. It passes requests on, and breaks what it is
// told to; and it adds what dynalite does not have: transactions, which it knows
// again by their tokens, the item that failed a condition, and the TTL, with a clock that is ahead of everybody's.
// Conditions are always judged by dynalite. Those who write do so one after the
// other, so that a transaction is one step; a read meanwhile sees each item
// before or after, as in DynamoDB. What need not be consistent is refused.
type front struct {
	addr     string
	dynalite string // its address
	client   *http.Client

	writing sync.Mutex
	ttl     map[string]any // by table
	tokens  map[string]any // transactions that took effect, by ClientRequestToken

	busy sync.WaitGroup // with requests

	mu    sync.Mutex
	seen  map[string]int // requests, by operation
	fault func(op string) fault
}

// A fault is what happens to a request; the zero fault is none.
type fault struct {
	code   string // answer this error, of a client or, with status 500, of the server
	status int
	drop   bool // close the connection before the request is executed
	lose   bool // execute it, and close the connection
	hold   bool // execute it, and never answer
	late   bool // execute it when the client has gone
}

// startFront starts a dynalite with a front and an empty table.
func startFront(t testing.TB) (*front, *dynamodb.Client) {
	t.Helper()
	f := &front{
		dynalite: startDynalite(t),
		client:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
		ttl:      make(map[string]any),
		tokens:   make(map[string]any),
		seen:     make(map[string]int),
	}
	server := httptest.NewServer(f)
	f.addr = server.Listener.Addr().String()
	t.Cleanup(f.client.CloseIdleConnections)
	t.Cleanup(server.Close)
	client := newClient(t, f.addr)
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	return f, client
}

// breaks has requests go as the function says, until the next call.
func (f *front) breaks(fault func(op string) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.seen = fault, make(map[string]int)
}

// times lets the first n requests of an operation go wrong.
func times(n int, op string, what fault) func(string) fault {
	return func(got string) fault {
		if got != op || n == 0 {
			return fault{}
		}
		n--
		return what
	}
}

// count is the number of requests of an operation since the last call of breaks.
func (f *front) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[op]
}

func (f *front) faultOf(op string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[op]++
	if f.fault == nil {
		return fault{}
	}
	return f.fault(op)
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.busy.Add(1)
	defer f.busy.Done()
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	wrong := f.faultOf(op)
	switch {
	case wrong.drop:
		panic(http.ErrAbortHandler)
	case wrong.code != "":
		status := wrong.status
		if status == 0 {
			status = http.StatusBadRequest
		}
		reply(w, status, failed(wrong.code))
		return
	case wrong.late:
		<-r.Context().Done()
	}
	status, answer := f.execute(op, body)
	if wrong.hold {
		<-r.Context().Done()
	}
	if wrong.lose || wrong.hold || wrong.late {
		panic(http.ErrAbortHandler)
	}
	reply(w, status, answer)
}

type object = map[string]any

func failed(code string) object {
	return object{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": "as the test wants"}
}

func reply(w http.ResponseWriter, status int, answer object) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *front) execute(op string, body []byte) (int, object) {
	var in object
	if err := json.Unmarshal(body, &in); err != nil {
		return http.StatusBadRequest, failed("SerializationException")
	}
	switch op {
	case "Scan", "CreateTable", "DescribeTable":
		return f.pass(op, in)
	case "UpdateTimeToLive":
		f.ttl[in["TableName"].(string)] = in["TimeToLiveSpecification"].(object)["AttributeName"]
		return http.StatusOK, object{}
	case "DescribeTimeToLive":
		if name := f.ttl[in["TableName"].(string)]; name != nil {
			return http.StatusOK, object{"TimeToLiveDescription": object{"TimeToLiveStatus": "ENABLED", "AttributeName": name}}
		}
		return f.pass(op, in)
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	switch op {
	case "GetItem":
		if in["ConsistentRead"] != true {
			return http.StatusBadRequest, failed("ValidationException")
		}
		f.expire(in)
	case "TransactWriteItems":
		return f.transactWrite(in)
	case "TransactGetItems":
		return f.transactGet(in)
	}
	status, answer := f.pass(op, in)
	if in["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD" && isType(answer, "ConditionalCheckFailedException") {
		answer["Item"] = f.get(object{"TableName": in["TableName"], "Key": keyOf(in)})
	}
	return status, answer
}

// pass has dynalite execute an operation.
func (f *front) pass(op string, in object) (int, object) {
	body, err := json.Marshal(in)
	must(err)
	r, err := http.NewRequest(http.MethodPost, "http://"+f.dynalite, bytes.NewReader(body))
	must(err)
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Date", "20240101T000000Z")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20240101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
	answer, err := f.client.Do(r)
	must(err)
	defer answer.Body.Close()
	var out object
	must(json.NewDecoder(answer.Body).Decode(&out))
	return answer.StatusCode, out
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func isType(answer object, code string) bool {
	name, _ := answer["__type"].(string)
	return strings.HasSuffix(name, "#"+code)
}

// keyOf is the key of what an operation is about.
func keyOf(in object) any {
	if key, ok := in["Key"]; ok {
		return key
	}
	return object{"key": in["Item"].(object)["key"]}
}

func (f *front) get(in object) any {
	_, answer := f.pass("GetItem", object{"TableName": in["TableName"], "Key": in["Key"], "ConsistentRead": true})
	return answer["Item"]
}

// ahead is how far the clock that deletes expired items is before this one.
const ahead = 30 * time.Minute

// expire deletes the item that is to be read, if it has expired. DynamoDB does so
// later.
func (f *front) expire(in object) {
	item, _ := f.get(in).(object)
	if item == nil {
		return
	}
	expires, _ := item["expires"].(object)
	text, _ := expires["N"].(string)
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds <= time.Now().Add(ahead).Unix() {
		status, _ := f.pass("DeleteItem", object{"TableName": in["TableName"], "Key": in["Key"]})
		if status != http.StatusOK {
			panic("dynalite can't delete")
		}
	}
}

func (f *front) transactGet(in object) (int, object) {
	var responses []object
	for _, action := range in["TransactItems"].([]any) {
		response := object{}
		f.expire(action.(object)["Get"].(object))
		if item := f.get(action.(object)["Get"].(object)); item != nil {
			response["Item"] = item
		}
		responses = append(responses, response)
	}
	return http.StatusOK, object{"Responses": responses}
}

// transactWrite judges all conditions, and if they hold writes all items.
func (f *front) transactWrite(in object) (int, object) {
	actions := in["TransactItems"].([]any)
	if len(actions) > 100 || hasDuplicates(actions) {
		return http.StatusBadRequest, failed("ValidationException")
	}
	token := in["ClientRequestToken"].(string)
	switch done, ok := f.tokens[token]; {
	case ok && reflect.DeepEqual(done, actions):
		return http.StatusOK, object{}
	case ok:
		return http.StatusBadRequest, failed("IdempotentParameterMismatchException")
	}
	reasons, canceled := make([]object, len(actions)), false
	for i, action := range actions {
		_, a := actionOf(action)
		reasons[i] = object{"Code": "None"}
		if !f.holds(a) {
			reasons[i], canceled = object{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}, true
		}
	}
	if canceled {
		answer := failed("TransactionCanceledException")
		answer["CancellationReasons"] = reasons
		return http.StatusBadRequest, answer
	}
	for i, action := range actions {
		kind, a := actionOf(action)
		if kind != "Put" {
			continue
		}
		status, answer := f.pass("PutItem", object{"TableName": a["TableName"], "Item": a["Item"]})
		if status != http.StatusOK && i == 0 {
			return status, answer // there is no table
		}
		if status != http.StatusOK {
			panic(fmt.Sprint("a transaction is half done: ", answer))
		}
	}
	f.tokens[token] = actions
	return http.StatusOK, object{}
}

// forget does what ten minutes do: a transaction is no longer known by its token.
func (f *front) forget() {
	f.writing.Lock()
	defer f.writing.Unlock()
	clear(f.tokens)
}

func actionOf(action any) (kind string, a object) {
	for kind, a := range action.(object) {
		return kind, a.(object)
	}
	panic("an action without a kind")
}

func hasDuplicates(actions []any) bool {
	seen := make(map[string]bool)
	for _, action := range actions {
		_, a := actionOf(action)
		key := fmt.Sprint(a["TableName"], keyOf(a))
		if seen[key] {
			return true
		}
		seen[key] = true
	}
	return false
}

// holds has dynalite judge the condition of an action, by a write on this
// condition that changes nothing.
func (f *front) holds(a object) bool {
	if a["ConditionExpression"] == nil {
		return true
	}
	in := object{"TableName": a["TableName"]}
	for _, name := range []string{"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"} {
		if a[name] != nil {
			in[name] = a[name]
		}
	}
	op, key := "DeleteItem", keyOf(a)
	in["Key"] = key
	if item := f.get(object{"TableName": a["TableName"], "Key": key}); item != nil {
		op = "PutItem"
		delete(in, "Key")
		in["Item"] = item
	}
	status, answer := f.pass(op, in)
	if status != http.StatusOK && !isType(answer, "ConditionalCheckFailedException") {
		panic(fmt.Sprint("dynalite can't judge ", in, ": ", answer))
	}
	return status == http.StatusOK
}
