package linktable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func readAll(t testing.TB, table, format string) (rows []Row, notes []string) {
	t.Helper()
	next, err := Read(strings.NewReader(table), format, func(what string) { notes = append(notes, what) })
	if err != nil {
		return nil, []string{err.Error()}
	}
	for {
		r, err := next()
		if errors.Is(err, io.EOF) {
			return rows, notes
		}
		if err != nil {
			return rows, append(notes, err.Error())
		}
		rows = append(rows, r)
	}
}

func TestExportsOfOtherServicesLoseNoRow(t *testing.T) {
	t.Parallel()
	const count = 10_000
	for name, c := range map[string]struct {
		format, head, row string // the row format; %[1]d is the row's number
		want              string // the expected link for row 7
		every             int    // rows whose number is divisible by this are bad; 0 means none
		bad, badRow       string
	}{
		"Bitly": {
			CSV, "link,long_url,title,created_at,archived,tags,engagements",
			`https://bit.ly/b%[1]d,https://example.com/%[1]d,"Title, %[1]d",2024-05-01T10:00:00+0000,true,a|b,%[1]d`,
			`{"url":"https://example.com/7","slug":"b7","title":"Title, 7","tags":["a","b"],"archived":true,"createdAt":1714557600000,` +
				`"importedClicks":7} bit.ly`, 0, "", "",
		},
		"Dub": {
			CSV, "domain,key,url,title,tags,expiresAt,expiredUrl,archived,clicks,createdAt,password,ios,android,geo",
			`dub.sh,d%[1]d,https://example.com/%[1]d,T,"x,y",2030-01-01T00:00:00.000Z,https://example.com/end,false,%[1]d,2024-05-01T10:00:00.000Z,` +
				`open,https://i.example/,https://a.example/,"{""DE"":""https://de.example/""}"`,
			`{"url":"https://example.com/7","slug":"d7","title":"T","tags":["x","y"],"expiresAt":1893456000000,"createdAt":1714557600000,` +
				`"importedClicks":7,"expiredUrl":"https://example.com/end","password":"open","rules":[` +
				`{"name":"iOS","when":{"system":["ios"]},"url":"https://i.example/"},` +
				`{"name":"Android","when":{"system":["android"]},"url":"https://a.example/"},` +
				`{"name":"Country DE","when":{"country":["DE"]},"url":"https://de.example/"}]} dub.sh`,
			100, "the password is hashed",
			`dub.sh,d%[1]d,https://example.com/%[1]d,T,,,,false,%[1]d,2024-05-01T10:00:00.000Z,$2b$10$abcdefghijklmnopqrstuv,,,`,
		},
		"Short.io": {
			CSV, "originalURL,path,shortURL,title,tags,createdAt,expiresAt,expiredURL,archived,clicks,clicksLimit,iphoneURL,androidURL",
			`https://example.com/%[1]d,s%[1]d,https://go.example/s%[1]d,T,a;b,2024-05-01T10:00:00.000Z,1893456000000,,true,%[1]d,900,https://i.example/,`,
			`{"url":"https://example.com/7","slug":"s7","title":"T","tags":["a","b"],"archived":true,"expiresAt":1893456000000,` +
				`"createdAt":1714557600000,"importedClicks":7,"maxClicks":900,` +
				`"rules":[{"name":"iOS","when":{"system":["ios"]},"url":"https://i.example/"}]} go.example`,
			50, "maxClicks must be a whole number", `https://example.com/%[1]d,s%[1]d,,,,,,,,,many,,`,
		},
		"YOURLS": {
			CSV, "keyword\turl\ttitle\ttimestamp\tclicks", "y%[1]d\thttps://example.com/%[1]d\tT\t2024-05-01 10:00:00\t%[1]d",
			`{"url":"https://example.com/7","slug":"y7","title":"T","createdAt":1714557600000,"importedClicks":7} `, 0, "", "",
		},
		"Shlink": {
			JSONLines, "",
			`{"shortUrl":"https://s.test/h%[1]d","shortCode":"h%[1]d","longUrl":"https://example.com/%[1]d","dateCreated":"2024-05-01T10:00:00+00:00",` +
				`"tags":["a"],"title":"T","domain":null,"visitsCount":%[1]d}`,
			`{"url":"https://example.com/7","slug":"h7","title":"T","tags":["a"],"createdAt":1714557600000,"importedClicks":7} s.test`,
			1000, "not a JSON object", "[%[1]d]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			b.WriteString(c.head + "\n")
			for i := range count {
				row := c.row
				if c.every > 0 && i%c.every == 0 {
					row = c.badRow
				}
				fmt.Fprintf(&b, row+"\n", i)
			}
			rows, notes := readAll(t, b.String(), c.format)
			if len(rows) != count || len(notes) > 0 {
				t.Fatalf("got %d rows and notes %q, want %d rows and no notes", len(rows), notes, count)
			}
			for i, r := range rows {
				if bad := c.every > 0 && i%c.every == 0; bad != (r.Bad != "") || !strings.HasPrefix(r.Bad, c.bad) && bad || r.Line != i+2 {
					t.Fatalf("row %d: got line %d and error %q, want line %d and an error = %v", i, r.Line, r.Bad, i+2, bad)
				}
			}
			item, err := json.Marshal(rows[7].Item)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			text, host, _ := strings.Cut(c.want, "} ")
			if json.Unmarshal(item, &got) != nil || json.Unmarshal([]byte(text+"}"), &want) != nil || fmt.Sprint(got) != fmt.Sprint(want) || rows[7].Host != host {
				t.Errorf("got  %s %s\nwant %s", item, rows[7].Host, c.want)
			}
		})
	}
}

// rewritten reads a table, writes its rows and reads them back.
func rewritten(t testing.TB, table, format string) (rows, again []Row, written string) {
	t.Helper()
	rows, _ = readAll(t, table, format)
	var cells []map[string]string
	for _, r := range rows {
		cells = append(cells, r.Cells)
	}
	var b strings.Builder
	if err := Write(&b, cells); err != nil {
		t.Fatal(err)
	}
	again, _ = readAll(t, strings.TrimSpace(b.String()), CSV)
	return rows, again, b.String()
}

func TestRowsAreReadAgainAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ format, table string }{
		"Bitly": {CSV, "link,long_url,title,created_at,archived,tags,engagements\nhttps://bit.ly/b1,https://example.com/1,\" Title, 1 \",2024-05-01T10:00:00+0000,true,a|b,7\n"},
		"Dub": {CSV, "domain,key,url,tags,expiresAt,expiredUrl,clicks,createdAt,password,ios,android,geo\n" +
			`dub.sh,d1,https://example.com/1,"x,y",soon,https://example.com/end,3,2024-05-01T10:00:00.000Z,$2b$10$abcdefghijklmnopqrstuv,https://i.example/,,"{""DE"":""https://de.example/""}"` + "\n"},
		"Short.io": {CSV, "originalURL,path,shortURL,tags,clicksLimit\nhttps://example.com/1,s1,https://go.example/s1,a;b,many\n"},
		"YOURLS":   {CSV, "keyword\turl\ttitle\ttimestamp\tclicks\ny1\thttps://example.com/1\tT\t2024-05-01 10:00:00\t0\n"},
		"Shlink":   {JSONLines, `{"shortUrl":"https://s.test/h1","shortCode":"h1","longUrl":"https://example.com/1","tags":["a;b"],"validUntil":null,"maxVisits":5}`},
		"ours": {CSV, "slug,url,title,createdAt,domainId,tags,archived,externalId,importedClicks,password,hasPassword,rules\n" +
			`s,https://example.com/1,'=1+1,2024-05-01T10:00:00.123Z,,"a|b,c;d",no,'+e,30,"secret ",true,"[{""name"":""a"",""when"":{""device"":[""phone""]},""url"":""https://a.example/""}]"` + "\n" +
			"two,https://example.com/2,\"@x\ny\",,dom_1,,true,,,,perhaps,[]\n"},
		"no headings":   {CSV, "https://example.com/1,a,\"T \"\nhttps://example.com/2\n"},
		"invalid UTF-8": {CSV, "url,title\nhttps://example.com/1,\xff\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, again, written := rewritten(t, c.table, c.format)
			if len(rows) == 0 || len(again) != len(rows) {
				t.Fatalf("read %d rows before and %d after writing them, want the same number:\n%s", len(rows), len(again), written)
			}
			for i, r := range rows {
				if name == "invalid UTF-8" { // invalid bytes cannot be preserved
					r.Bad, r.Item.Title = "", "\ufffd"
				}
				item, _ := json.Marshal(r.Item)
				same, _ := json.Marshal(again[i].Item)
				if r.Line = again[i].Line; string(item) != string(same) || r.Bad != again[i].Bad || r.Host != again[i].Host || r.DomainID != again[i].DomainID {
					t.Errorf("row %d after writing:\ngot  %s %q %q %q\nwant %s %q %q %q\n%s", i, same, again[i].Bad, again[i].Host, again[i].DomainID,
						item, r.Bad, r.Host, r.DomainID, written)
				}
			}
			for line := range strings.SplitSeq(written, ",") {
				if strings.HasPrefix(line, "=") || strings.HasPrefix(line, "@") || strings.HasPrefix(line, "+") {
					t.Errorf("cell %q looks like a formula, want it escaped", line)
				}
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add("url,slug,rules,geo\nhttps://a.example,a,[],{}\n", false)
	f.Add(`{"url":"https://a.example","geo":{"DE":1},"tags":[{"name":"x"}]}`, true)
	f.Fuzz(func(t *testing.T, table string, lines bool) {
		format := CSV
		if lines {
			format = JSONLines
		}
		rows, _ := readAll(t, table, format)
		if _, again, written := rewritten(t, table, format); len(again) != len(rows) {
			t.Errorf("read %d rows after writing, want %d:\n%s", len(again), len(rows), written)
		}
		if most := strings.Count(table, "\n") + strings.Count(table, "\r") + 1; len(rows) > most {
			t.Errorf("got %d rows from a table with %d lines, want at most one row per line", len(rows), most)
		}
	})
}
