package contract_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/linkreel/linkreel/tools/internal/contract"
	"github.com/linkreel/linkreel/tools/internal/root"
)

func read(t *testing.T) *contract.Contract {
	t.Helper()
	dir, err := root.Dir()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "libs/apispec/openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := contract.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOperationsSayWhatClientsNeed(t *testing.T) {
	t.Parallel()
	ops := map[string]*contract.Operation{}
	for _, o := range read(t).Operations {
		if ops[o.ID] != nil {
			t.Errorf("operation %s occurs twice", o.ID)
		}
		ops[o.ID] = o
	}
	create := ops["createLink"]
	if create.Method != "POST" || create.Path != "/api/v1/links" || create.Tag != "Links" || create.Body.Schema.Name() != "LinkCreate" ||
		!create.Takes("idempotency-key") || create.Takes("If-Match") || create.Answer().Schema.Name() != "LinkCreated" {
		t.Errorf("createLink = %+v, want a POST of LinkCreate with Idempotency-Key that returns LinkCreated", create)
	}
	if bulk := ops["bulkCreateLinks"].Answer(); bulk.Status != 207 || bulk.Schema.Name() != "BulkResults" {
		t.Errorf("bulkCreateLinks response = %+v, want 207 BulkResults", bulk)
	}
	if c := ops["putCaptions"]; len(c.PathParameters) != 2 || c.PathParameters[1].Name != "lang" || c.Body.Type != "text/vtt" {
		t.Errorf("putCaptions = %+v, want two path parameters and a text/vtt body", c)
	}
	if d := ops["deleteLink"]; d.Body != nil || d.Answer().Type != "" || !d.Takes("If-Match") || d.Paging != contract.NoList {
		t.Errorf("deleteLink = %+v, want no bodies, If-Match, not a list", d)
	}
	for id, once := range map[string]bool{
		"createLink": false, "getLink": false, "deleteLink": false, "createDeviceCode": false, "collectDeviceKey": false, "adminCreateSignInLink": true,
	} {
		if ops[id].Once() != once {
			t.Errorf("%s: Once() = %v, want %v", id, !once, once)
		}
	}
	if !ops["createDeviceCode"].Public || create.Public || !ops["adminTakeDown"].Operator() || create.Operator() {
		t.Errorf("createDeviceCode and createLink: Public = %v and %v; adminTakeDown and createLink: Operator = %v and %v; want true and false for both",
			ops["createDeviceCode"].Public, create.Public, ops["adminTakeDown"].Operator(), create.Operator())
	}
}

func TestListsSayHowTheyGoOn(t *testing.T) {
	t.Parallel()
	for _, o := range read(t).Operations {
		switch o.ID {
		case "listLinks":
			if o.Paging != contract.InBody || o.All != "links" || o.Item.Name() != "LinkSummary" {
				t.Errorf("%s: iterator %s yields %s, paging %s; want links yielding LinkSummary, in the body", o.ID, o.All, o.Item.Name(), o.Paging)
			}
		case "listVideos":
			if o.Paging != contract.LinkHeader || o.All != "videos" || o.Item.Name() != "VideoSummary" {
				t.Errorf("%s: iterator %s yields %s, paging %s; want videos yielding VideoSummary, in the Link header", o.ID, o.All, o.Item.Name(), o.Paging)
			}
		case "adminListAccounts":
			if o.Paging != contract.InBody || o.All != "adminAccounts" {
				t.Errorf("%s: iterator %s, paging %s; want adminAccounts, in the body", o.ID, o.All, o.Paging)
			}
		}
	}
}
