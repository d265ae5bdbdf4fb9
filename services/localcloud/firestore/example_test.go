package firestore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// This example uses an in-memory database through Google's client. Set Options.Path to store the
// database in a file.
func Example() {
	server, err := firestore.Open(firestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	ctx := context.Background()
	client, err := server.Client(ctx, "my-project")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Doc("greetings/first").Set(ctx, map[string]any{"text": "hello"}); err != nil {
		log.Fatal(err)
	}
	snap, err := client.Doc("greetings/first").Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(snap.Data()["text"])
	// Output: hello
}

// With declared indexes, a query without an index fails as in production.
func ExampleParseIndexes() {
	indexes, err := firestore.ParseIndexes([]byte(`{"indexes": [{"collectionGroup": "links", "queryScope": "COLLECTION",
		"fields": [{"fieldPath": "owner", "order": "ASCENDING"}, {"fieldPath": "createdAt", "order": "DESCENDING"}]}]}`))
	if err != nil {
		log.Fatal(err)
	}
	server, err := firestore.Open(firestore.Options{Indexes: indexes})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	ctx := context.Background()
	client, err := server.Client(ctx, "my-project")
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Collection("links").Where("owner", "==", "ann").OrderBy("title", 1).Documents(ctx).GetAll()
	fmt.Println(err != nil)
	// Output: true
}
