package linktable

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns the text of a file as UTF-8, without a byte order mark. It also reads UTF-16 with a
// byte order mark, which some spreadsheet programs write.
func Text(r io.Reader) *bufio.Reader {
	in := bufio.NewReaderSize(r, 64<<10)
	start, _ := in.Peek(3) // a later read reports the error
	order := binary.ByteOrder(binary.LittleEndian)
	switch {
	case bytes.HasPrefix(start, []byte("\xef\xbb\xbf")):
		_, _ = in.Discard(3)
		return in
	case bytes.HasPrefix(start, []byte("\xfe\xff")):
		order = binary.BigEndian
	case !bytes.HasPrefix(start, []byte("\xff\xfe")):
		return in
	}
	_, _ = in.Discard(2)
	return bufio.NewReaderSize(&wide{in, order}, 64<<10)
}

// wide decodes UTF-16. An unpaired surrogate and an incomplete code unit at the end become U+FFFD.
type wide struct {
	in    *bufio.Reader
	order binary.ByteOrder
}

func (w *wide) Read(p []byte) (n int, err error) {
	for n+utf8.UTFMax <= len(p) {
		unit, err := w.in.Peek(2)
		if len(unit) < 2 {
			if len(unit) == 1 && errors.Is(err, io.EOF) {
				n += utf8.EncodeRune(p[n:], utf8.RuneError)
				_, _ = w.in.Discard(1)
			}
			if n > 0 {
				return n, nil
			}
			return 0, err
		}
		r, size := rune(w.order.Uint16(unit)), 2
		if utf16.IsSurrogate(r) {
			if pair, _ := w.in.Peek(4); len(pair) == 4 {
				if whole := utf16.DecodeRune(r, rune(w.order.Uint16(pair[2:]))); whole != utf8.RuneError {
					r, size = whole, 4
				}
			}
		}
		n += utf8.EncodeRune(p[n:], r) // an unpaired surrogate is written as U+FFFD
		_, _ = w.in.Discard(size)
	}
	return n, nil
}

// separator returns the column separator of a table that begins with start: a tab, a comma, or a
// semicolon. Spreadsheet programs use a semicolon in locales with a decimal comma.
func separator(start []byte) rune {
	line, _, _ := bytes.Cut(start, []byte("\n"))
	head := string(line)
	switch {
	case strings.Contains(head, "\t"):
		return '\t'
	case strings.Contains(head, ";") && !strings.Contains(head, ",") && !strings.Contains(head, "://"):
		return ';'
	}
	return ','
}

// recorder keeps the text of the current record.
type recorder struct {
	in   *bufio.Reader
	text []byte
	from int64 // the offset of text in the table
}

func (r *recorder) Read(p []byte) (n int, err error) {
	n, err = r.in.Read(p)
	r.text = append(r.text, p[:n]...)
	return n, err
}

// begin drops the text before at, the offset of the next record.
func (r *recorder) begin(at int64) {
	r.text, r.from = append(r.text[:0], r.text[at-r.from:]...), at
}

// wrong returns a description of the error in the record that begins on line and ends at the offset
// end, or "". The CSV reader accepts stray quotation marks. If a quotation mark is not closed, it
// reads all lines up to the next quotation mark or the end of the table into one cell.
func (r *recorder) wrong(end int64, line int, comma rune) string {
	record := bytes.TrimRight(r.text[:end-r.from], "\r\n")
	record = bytes.TrimLeft(record, "\r\n")
	if len(record) > maxRow {
		return "the row is longer than 1 MiB; is a quotation mark missing?"
	}
	more := bytes.Count(record, []byte{'\n'})
	if more == 0 {
		return ""
	}
	strict := csv.NewReader(bytes.NewReader(record))
	strict.Comma, strict.FieldsPerRecord = comma, -1
	if _, err := strict.Read(); err != nil {
		return fmt.Sprintf("a quotation mark is missing, so lines %d to %d were read as one row", line, line+more)
	}
	return ""
}
