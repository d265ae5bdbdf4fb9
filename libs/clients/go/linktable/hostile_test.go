package linktable

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// in16 encodes text as UTF-16 with a byte order mark.
func in16(order binary.AppendByteOrder, text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		out = order.AppendUint16(out, unit)
	}
	return string(out)
}

// told formats a row as one line.
func told(r Row) string {
	out := fmt.Sprint(r.Line, " ", r.Item.URL, " ", r.Item.Slug, " ", r.Item.Title)
	if r.Bad != "" {
		out += "! " + r.Bad
	}
	return strings.Join(strings.Fields(out), " ")
}

func TestOddTablesAreReadOrRefusedRowByRow(t *testing.T) {
	t.Parallel()
	const plain = "url,slug,title\r\nhttps://a.example/,a,Grüße 🎉\r\nhttps://b.example/,b,\r\n"
	read := []string{"2 https://a.example/ a Grüße 🎉", "3 https://b.example/ b"}
	for name, c := range map[string]struct {
		table, format string
		rows          []string
		note          string
	}{
		"UTF-8 with a byte order mark":        {"\ufeff" + plain, CSV, read, ""},
		"UTF-16, little endian":               {in16(binary.LittleEndian, plain), CSV, read, ""},
		"UTF-16, big endian":                  {in16(binary.BigEndian, plain), CSV, read, ""},
		"UTF-16 with tabs, as saved by Excel": {in16(binary.LittleEndian, strings.ReplaceAll(plain, ",", "\t")), CSV, read, ""},
		"UTF-16 that ends within a code unit": {in16(binary.LittleEndian, "url,slug\nhttps://a.example/,a") + "x", CSV, []string{"2 https://a.example/ a\ufffd"}, ""},
		"unpaired surrogate in UTF-16":        {"\xff\xfeu\x00r\x00l\x00\n\x00x\x00\x3d\xd8y\x00", CSV, []string{"2 x\ufffdy"}, ""},
		"UTF-16 in JSON Lines":                {in16(binary.LittleEndian, `{"url":"https://a.example/","slug":"a"}`), JSONLines, []string{"1 https://a.example/ a"}, ""},
		"Latin-1": {"url,title\nhttps://a.example/,Gr\xfc\xdfe\nhttps://b.example/,b\n", CSV,
			[]string{"2 https://a.example/ ! not valid UTF-8; save the file as UTF-8", "3 https://b.example/ b"}, ""},
		"semicolons": {strings.ReplaceAll(plain, ",", ";"), CSV, read, ""},
		"NUL bytes": {"url,slug,title\nhttps://a.example/\x00,a\x00,\x00\n\x00\nhttps://b.example/,b,\n", CSV,
			[]string{"2 https://a.example/\x00 a\x00 \x00", "3 \x00", "4 https://b.example/ b"}, ""},
		"line breaks in cells": {"url,slug,title\nhttps://a.example/,a,\"one\ntwo, \"\"three\"\"\"\nhttps://b.example/,b,\n", CSV,
			[]string{"2 https://a.example/ a one two, \"three\"", "4 https://b.example/ b"}, ""},
		"quotation marks in a row": {"url,slug,title\nhttps://a.example/,a,a 5\" screen\nhttps://b.example/,b,\"so \"called\" b\"\n", CSV,
			[]string{"2 https://a.example/ a a 5\" screen", "3 https://b.example/ b so \"called\" b"}, ""},
		"unclosed quotation mark": {"url,slug,title\nhttps://a.example/,a,\nhttps://b.example/,b,\"never\nhttps://c.example/,c,\n", CSV,
			[]string{"2 https://a.example/ a", "3 ! a quotation mark is missing, so lines 3 to 4 were read as one row"}, ""},
		"quotation mark closed in a later row": {"url,slug,title\nhttps://a.example/,a,\"never\nhttps://b.example/,b,\nhttps://c.example/,c,\"C\"\nhttps://d.example/,d,\n", CSV,
			[]string{"2 ! a quotation mark is missing, so lines 2 to 4 were read as one row", "5 https://d.example/ d"}, ""},
		"repeated headings": {"url,slug,URL,Slug,other\nhttps://a.example/,a,https://b.example/,b,c\n", CSV,
			[]string{"2 https://a.example/ a"}, "the columns a second URL, a second Slug, other"},
		"formulas": {"url,slug,title\nhttps://a.example/,a,'=1+1\nhttps://b.example/,b,=HYPERLINK(1)\n'=https://c.example/,c,\n", CSV,
			[]string{"2 https://a.example/ a =1+1", "3 https://b.example/ b =HYPERLINK(1)", "4 =https://c.example/ c"}, ""},
		"rows of different lengths": {"url,slug\n\n\nhttps://a.example/\n,,,,\nhttps://b.example/,b,c,d,e\n", CSV,
			[]string{"4 https://a.example/", "5", "6 https://b.example/ b"}, ""},
		"slugs with a slash": {"url,shortUrl\nhttps://a.example/,https://s.example/x/y\nhttps://b.example/,s.example/b\nhttps://c.example/,https://s.example/c/\n", CSV,
			[]string{"2 https://a.example/ x/y ! the slug x/y contains a slash, which Linkreel does not support", "3 https://b.example/ b", "4 https://c.example/ c"}, ""},
		"key with a slash":              {"key,url\nx/y,https://a.example/\n", CSV, []string{"2 https://a.example/ x/y ! the slug x/y contains a slash, which Linkreel does not support"}, ""},
		"no column for the destination": {"a,b\n1,2\n", CSV, nil, "no column holds the destination: rename that column to url (found a, b)"},
		"JSON as CSV":                   {`{"url":"https://a.example/"}`, CSV, nil, `no column holds the destination: rename that column to url (found {"url":"https://a.example/"})`},
		"image file":                    {"\x89PNG\r\n\x1a\n\x00\xff\xfe", CSV, nil, "no column holds the destination: rename that column to url (found \ufffdPNG)"},
		"JSON list": {"[\n{\"url\":\"https://a.example/\"},\n]", JSONLines, []string{
			"1 ! not a JSON object; a JSON Lines file has one object on each line", "2 ! not a JSON object; a JSON Lines file has one object on each line",
			"3 ! not a JSON object; a JSON Lines file has one object on each line",
		}, ""},
		"unusual JSON": {"null\n{}\n{\"url\":5}\n{\"url\":[\"x\"]}\n{\"url\":{\"a\":1}}\n{\"url\":\"\\u0000\\ud800\"}\n", JSONLines,
			[]string{"1", "2", "3 5", "4 x", "5", "6 \x00\ufffd"}, ""},
		"nothing": {"", CSV, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, notes := readAll(t, c.table, c.format)
			var got []string
			for _, r := range rows {
				got = append(got, told(r))
			}
			if !slices.Equal(got, c.rows) || strings.Join(notes, "|") != c.note {
				t.Errorf("rows %q, notes %q\nwant %q, %q", got, notes, c.rows, c.note)
			}
		})
	}
}

// A table may be any size, but the memory for one row and the length of messages about a table are
// bounded.
func TestLargeTablesCostLittle(t *testing.T) {
	t.Parallel()
	last := "https://last.example/"
	huge := strings.Repeat("x", 10<<20)
	wide := make([]string, 10_000)
	for i := range wide {
		wide[i] = fmt.Sprint("column ", i, strings.Repeat("y", 100))
	}
	fields := map[string]any{"url": last}
	for i := range 10_000 {
		fields[fmt.Sprint("field ", i)] = i
	}
	object, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ table, format, bad string }{
		"10 MiB cell":                            {"url,title\nhttps://a.example/," + huge + "\n" + last + ",\n", CSV, "the row is longer than 1 MiB"},
		"quoted 10 MiB cell":                     {"url,title\nhttps://a.example/,\"" + huge + "\"\n" + last + ",\n", CSV, "the row is longer than 1 MiB"},
		"cell that doubles in size when escaped": {"url,title\nhttps://a.example/," + strings.Repeat("\x01", 900<<10) + "\n" + last + ",\n", CSV, "the row is too large"},
		"10,000 columns":                         {strings.Join(wide, ",") + ",url\n" + strings.Repeat(",", 10_000) + last + "\n", CSV, ""},
		"10,000 unknown headings":                {strings.Join(wide, ",") + "\n", CSV, ""},
		"10 MiB line":                            {`{"url":"` + huge + "\"}\n" + `{"url":"` + last + `"}`, JSONLines, "the line is longer than 1 MiB"},
		"10,000 fields":                          {string(object) + "\n" + strings.ReplaceAll(string(object), "field", "other"), JSONLines, ""},
		"deeply nested object":                   {strings.Repeat(`{"a":`, 100_000) + "\n" + `{"url":"` + last + `"}`, JSONLines, "not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, notes := readAll(t, c.table, c.format)
			if c.bad != "" && (len(rows) != 2 || !strings.HasPrefix(rows[0].Bad, c.bad)) {
				t.Errorf("got %d rows, the first %.200q; want two rows, the first with an error", len(rows), told(rows[0]))
			}
			if len(rows) > 0 && rows[len(rows)-1].Item.URL != last {
				t.Errorf("the last row is %.200q, want it with the last destination", told(rows[len(rows)-1]))
			}
			said := 0
			for _, note := range notes {
				said += len(note)
			}
			for _, r := range rows {
				said += len(told(r))
			}
			if said > 8<<10 || len(notes) > maxNotes {
				t.Errorf("got %d bytes of errors and notes and %d notes, want at most 8 KiB and maxNotes notes", said, len(notes))
			}
		})
	}
}

// Read holds only one row in memory.
func TestReadingKeepsNoRow(t *testing.T) {
	const rows = 8_000
	for _, format := range []string{CSV, JSONLines} {
		in, out := io.Pipe()
		go func() {
			_, _ = io.WriteString(out, map[string]string{CSV: "url,title\n"}[format])
			row := map[string]string{CSV: "https://a.example/,\"" + strings.Repeat("t", 900) + "\n\"\n", JSONLines: `{"url":"https://a.example/","title":"` + strings.Repeat("t", 900) + "\"}\n"}[format]
			for range rows {
				if _, err := io.WriteString(out, row); err != nil {
					return
				}
			}
			_ = out.Close()
		}()
		next, err := Read(in, format, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		n := 0
		for ; ; n++ {
			if _, err = next(); err != nil {
				break
			}
			if n == rows-1 {
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
		}
		if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); !errors.Is(err, io.EOF) || n != rows || kept > 2<<20 {
			t.Errorf("%s: read %d rows with error %v and kept %d bytes, want all rows, io.EOF and at most 2 MiB", format, n, err, kept)
		}
	}
}

func TestChunksFitIntoRequests(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	for i := range 250 {
		fmt.Fprintf(&table, "{\"url\":\"https://a.example/%d\",\"title\":%q}\n", i, strings.Repeat("t", i%7*8_000))
	}
	next, err := Read(strings.NewReader(table.String()), JSONLines, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	take, seen := Chunks(next, 100), 0
	for {
		rows, err := take()
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		size := 0
		for _, r := range rows {
			if want := fmt.Sprint("https://a.example/", seen); r.Item.URL != want {
				t.Fatalf("row %q, want %q", r.Item.URL, want)
			}
			size, seen = size+r.Size(), seen+1
		}
		if len(rows) > 100 || size > MaxRequest {
			t.Errorf("chunk of %d rows and %d bytes, want at most 100 rows and MaxRequest bytes", len(rows), size)
		}
	}
	if seen != 250 {
		t.Errorf("the chunks have %d rows, want 250", seen)
	}
}

func TestFieldsThatOtherServicesNest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ format, table, want, note string }{
		"Shlink": {
			JSONLines, `{"shortCode":"a","shortUrl":"https://s.test/a","longUrl":"https://a.example/","dateCreated":"2024-05-01T10:00:00+00:00",` +
				`"visitsSummary":{"total":42,"nonBots":40,"bots":2},"meta":{"validSince":"2024-06-01T00:00:00+00:00","validUntil":null,"maxVisits":100},` +
				`"tags":["x"],"domain":null,"title":null,"crawlable":false,"forwardQuery":true,"hasRedirectRules":false}`,
			`{"url":"https://a.example/","slug":"a","tags":["x"],"forwardQuery":true,"startsAt":1717200000000,"maxClicks":100,"createdAt":1714557600000,"importedClicks":42}`,
			"the field crawlable|the field hasRedirectRules",
		},
		"Shlink before version 4": {
			JSONLines, `{"shortCode":"a","longUrl":"https://a.example/","visitsCount":7,"visitsSummary":{"total":9}}`,
			`{"url":"https://a.example/","slug":"a","importedClicks":7}`, "",
		},
		"unknown meta": {
			JSONLines, `{"url":"https://a.example/","meta":{"maxVisits":5,"colour":"red"}}`, `{"url":"https://a.example/","maxClicks":5}`, "the field meta",
		},
		"YOURLS export plugin": {
			CSV, "source,target,hits\r\n/abc/,https://a.example/,12\r\n", `{"url":"https://a.example/","slug":"abc","importedClicks":12}`, "",
		},
		"source column from another service": {CSV, "url,source\nhttps://a.example/,newsletter\n", `{"url":"https://a.example/"}`, "the columns source"},
		"Shlink web client": {
			CSV, "createdAt,domain,shortCode,shortUrl,longUrl,title,tags,visits\n2024-05-01T10:00:00+00:00,s.test,a,https://s.test/a,https://a.example/,T,x|y,3\n",
			`{"url":"https://a.example/","slug":"a","title":"T","tags":["x","y"],"createdAt":1714557600000,"importedClicks":3}`, "",
		},
		"Dub with column labels": {
			CSV, "Short link,Destination URL,Title,Tags,Archived,Clicks,Created at\nhttps://dub.sh/a,https://a.example/,T,\"x, y\",false,5,2024-05-01T10:00:00.000Z\n",
			`{"url":"https://a.example/","slug":"a","title":"T","tags":["x","y"],"createdAt":1714557600000,"importedClicks":5}`, "",
		},
		"Dub with all columns": {
			CSV, "id,domain,key,url,archived,expiresAt,expiredUrl,externalId,title,description,ios,android,geo.AL,geo.de,clicks,lastClicked,createdAt,tags\n" +
				"x,dub.sh,a,https://a.example/,false,null,null,null,null,null,https://i.example/,null,null,https://de.example/,1,null,2024-05-01T10:00:00.000Z,null\n",
			`{"url":"https://a.example/","slug":"a","createdAt":1714557600000,"importedClicks":1,"rules":[` +
				`{"name":"iOS","when":{"system":["ios"]},"url":"https://i.example/"},{"name":"Country DE","when":{"country":["DE"]},"url":"https://de.example/"}]}`,
			"the columns description, lastClicked",
		},
		"Linkreel table with the title null": {
			CSV, "url,slug,title,domainId\nhttps://a.example/,a,null,\n", `{"url":"https://a.example/","slug":"a","title":"null"}`, "",
		},
		"Bitly dashboard": {
			CSV, "Bitlink,Long URL,Title,Tags,Created,Total Clicks\nhttps://bit.ly/a,https://a.example/,T,x|y,2024-05-01,5\n",
			`{"url":"https://a.example/","slug":"a","title":"T","tags":["x","y"],"createdAt":1714521600000,"importedClicks":5}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, notes := readAll(t, c.table, c.format)
			if len(rows) != 1 || rows[0].Bad != "" || strings.Join(notes, "|") != c.note {
				t.Fatalf("error %v, notes %q, want %q", rows, notes, c.note)
			}
			raw, err := json.Marshal(rows[0].Item)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if json.Unmarshal(raw, &got) != nil || json.Unmarshal([]byte(c.want), &want) != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got  %s\nwant %s", raw, c.want)
			}
		})
	}
}
