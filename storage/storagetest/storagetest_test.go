package storagetest_test

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/storage/storagetest"
)

func TestStorage(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Storage { return &databaseStore{newTable()} })
}

// faultVariable names the fault that TestBroken is to run the suite on.
const faultVariable = "STORAGETEST_FAULT"

// TestFaults runs the cases of the suite on storages that break their promises,
// each in a process of its own, and wants them to fail.
func TestFaults(t *testing.T) {
	var broken []string
	for _, f := range faults {
		broken = append(broken, f.promise)
		t.Run(f.promise+"/"+f.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestBroken$/^"+f.promise+"$")
			cmd.Env = append(os.Environ(), faultVariable+"="+f.name, "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "the suite passed")
			require.Contains(t, string(out), "--- FAIL: TestBroken/"+f.promise+" ")
			require.Contains(t, string(out), f.promise+": ", "the failure does not say which promise was broken")
		})
	}
	names, _ := storagetest.Promises()
	require.Subset(t, broken, names, "a promise that no fault breaks")
}

// TestBroken is what TestFaults starts. By itself it does nothing.
func TestBroken(t *testing.T) {
	for _, f := range faults {
		if f.name == os.Getenv(faultVariable) {
			storagetest.Run(t, func(*testing.T) storage.Storage { return f.open() })
		}
	}
}

// TestBullets wants the contract and the suite to say the same: storage.Storage
// has the text of the promises, and this package's documentation their names.
func TestBullets(t *testing.T) {
	names, texts := storagetest.Promises()
	contract := bullets(docOf(t, "../storage.go", "Storage"))
	require.Len(t, contract, len(names))
	for i, bullet := range contract {
		name, text, _ := strings.Cut(bullet, ": ")
		require.Equal(t, strings.ToLower(names[i]), strings.ToLower(strings.ReplaceAll(name, " ", "")))
		require.Equal(t, texts[i], text)
	}
	for i, bullet := range bullets(docOf(t, "storagetest.go", "")) {
		name, _, _ := strings.Cut(bullet, ": ")
		require.Equal(t, names[i], name)
	}
}

// docOf is the doc comment of a type or, without a name, of the package.
func docOf(t *testing.T, file, typeName string) string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	if typeName == "" {
		return f.Doc.Text()
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE && d.Specs[0].(*ast.TypeSpec).Name.Name == typeName {
			return d.Doc.Text()
		}
	}
	require.Failf(t, "no such type", "%s in %s", typeName, file)
	return ""
}

func bullets(doc string) (bullets []string) {
	for _, block := range new(comment.Parser).Parse(doc).Content {
		list, ok := block.(*comment.List)
		if !ok {
			continue
		}
		for _, item := range list.Items {
			text := new(comment.Printer).Text(&comment.Doc{Content: item.Content})
			bullets = append(bullets, strings.Join(strings.Fields(string(text)), " "))
		}
	}
	return bullets
}
