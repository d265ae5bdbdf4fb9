package web_test

import (
	"bytes"
	"html"
	"mime/multipart"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
)

// importFile sends a file to the import, as browsers do.
func (d *desk) importFile(name, content string) (status int, page string) {
	d.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	err := w.WriteField("csrf", d.token("/app/links/import"))
	part, made := w.CreateFormFile("file", name)
	if err != nil || made != nil {
		d.t.Fatal(err, made)
	}
	_, _ = part.Write([]byte(content)) // to memory
	if err := w.Close(); err != nil {
		d.t.Fatal(err)
	}
	resp, page := d.send("POST", "/app/links/import", w.FormDataContentType(), &body)
	checkPage(d.t, "import of "+name, resp, page)
	return resp.StatusCode, html.UnescapeString(page)
}

func wide(text string) string {
	out := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(text)) {
		out = append(out, byte(unit), byte(unit>>8))
	}
	return string(out)
}

func TestHostileTablesGetAnAnswer(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.answers["POST /api/v1/links/bulk"] = answer{207, "", `{"results":[{"status":201,"data":{"id":"lnk_1","shortUrl":"https://s.example/made"}}]}`}
	for name, c := range map[string]struct {
		table  string
		status int
		says   string
	}{
		"UTF-16":            {wide("url\tslug\r\nhttps://a.example/\ta\r\n"), 200, "https://s.example/made"},
		"UTF-16 in JSON":    {wide(`{"url":"https://a.example/"}`), 200, "https://s.example/made"},
		"semicolons":        {"url;slug\nhttps://a.example/;a\n", 200, "https://s.example/made"},
		"Latin-1":           {"url,title\nhttps://a.example/,Gr\xfc\xdfe\n", 200, "not valid UTF-8; save the file as UTF-8"},
		"an unclosed quote": {"url,title\nhttps://a.example/,\"never\nhttps://b.example/,\n", 200, "a quotation mark is missing, so lines 2 to 3 were read as one row"},
		"NUL":               {"url,title\nhttps://a.example/\x00,\x00\n", 200, "https://s.example/made"},
		"10,000 columns":    {strings.Repeat("column,", 10_000) + "\n", 400, "The table cannot be read: no column holds the destination: rename that column to url (found column, "},
		"10,001 columns":    {strings.Repeat("column,", 10_000) + "url\n" + strings.Repeat(",", 10_000) + "https://a.example/\n", 200, "https://s.example/made"},
		"an image":          {"\x89PNG\r\n\x1a\n\x00\xff\xfe", 400, "The table cannot be read: no column holds the destination"},
		"deep nesting":      {strings.Repeat(`{"a":`, 50_000), 200, "not a JSON object"},
		"nothing":           {"", 400, "Paste a table or choose a file."},
		"blanks":            {" \r\n\t\ufeff\n", 400, ""},
		"a large cell":      {"url,title\nhttps://a.example/," + strings.Repeat("x", 600<<10), 200, "the row is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			if status, page := d.importFile(name+".csv", c.table); status != c.status || !strings.Contains(page, c.says) {
				t.Errorf("the uploaded file returned %d, want %d and %q\n%.3000s", status, c.status, c.says, page)
			}
			resp, page := d.post("/app/links/import", "/app/links/import", url.Values{"csv": {c.table}})
			if resp.StatusCode/100 == 5 {
				t.Errorf("the pasted table returned %d, want no server error:\n%.2000s", resp.StatusCode, page)
			}
		})
	}
}
