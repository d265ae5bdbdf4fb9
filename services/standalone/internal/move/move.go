// Package move copies the records and objects from an embedded cloud into another database and
// bucket, such as Google's. It uses the Firestore and Cloud Storage protocols.
//
// # What it promises
//
//   - [Move.Pass] makes the target equal to a snapshot of the source, including deletions. It
//     writes only the differences, so later passes are shorter. A pass resumes where a killed one
//     left off, even in a different process.
//   - It writes into a target only if the target was empty or belongs to the same move.
//   - Values and names are copied exactly. Only the database name is replaced, in document
//     names and references. Objects keep their generations (see [objectstore.Moved]).
//   - Documents in [Move.Ordered] collections are created in the same order as in the source, even
//     if only their creation times record that order.
//   - No release of Linkreel opens the target's database before [Move.Finish], because the
//     database's identity document is written last.
//
// A move needs a small amount of memory for each document and object. Documents and objects get new
// creation and update times.
package move

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// Source is an embedded cloud that serves its state at URL (see [backup.Source]).
type Source struct {
	URL, Token string
	Database   string // projects/…/databases/…
	Bucket     string
}

// Move is one move. After an error, continue with a new Move with the same ID.
type Move struct {
	ID      string
	From    Source
	Records *firestoredb.Documents // of the target
	Objects *objectstore.Store     // of the target
	Ordered []string               // collection ids
	// Step, if set, is called with the name of a step before or after each change to the target.
	Step func(string)

	pass     int
	records  map[string]record // of the target, by path
	objects  map[string]object // of the target, by name
	identity *pb.Document      // of the source
}

type record struct {
	sum  sum
	pass int // the last pass that found the record in the source
}

type sum [16]byte

type object struct {
	of         string // id of the object's bytes in the source
	generation int64
	size       int64
	crc        uint32
	pass       int
}

// Changes counts the changes that a pass has made.
type Changes struct {
	Records, Deleted int   // documents written and deleted
	Objects          int   // objects written or deleted
	Bytes            int64 // of the objects written
}

// Totals describes a target. Two targets with the same checksum have the same documents and
// objects.
type Totals struct {
	Records, Objects int
	Bytes            int64
	Checksum         string
}

// These documents belong to the database itself, not to its content.
const (
	identityPath = "installation/database"
	markPath     = "installation/move"
)

// own is the prefix of objects that belong to the bucket itself, not to its content. markObject is
// the object that names the move.
const (
	own        = "linkreel/"
	markObject = own + "move"
)

// ErrFinished means that this move is already finished. The target may be in use.
var ErrFinished = errors.New("the move is already finished")

// Begin marks the target if it is empty. If an earlier run has partly filled the target, Begin
// reads it.
func (m *Move) Begin(ctx context.Context) error {
	if err := m.markDatabase(ctx); err != nil {
		if errors.Is(err, ErrFinished) { // Finish may have been killed before its last step
			err = cmp.Or(m.unmarkBucket(ctx), err)
		}
		return err
	}
	if err := m.markBucket(ctx); err != nil {
		return err
	}
	return m.look(ctx)
}

func (m *Move) markDatabase(ctx context.Context) error {
	for range 2 {
		mark, err := m.Records.Get(ctx, markPath)
		if err != nil {
			return fmt.Errorf("read the target's database: %w", err)
		}
		if mark != nil {
			return m.mine(mark)
		}
		err = m.Records.Each(ctx, 1, func(d *pb.Document) error {
			return fmt.Errorf("the database %s is not empty: it contains the document %s. Use a new database", m.Records.Database, m.path(d))
		})
		if err != nil {
			return err
		}
		w := m.mark(false)
		w.CurrentDocument = exists(false)
		m.step("mark the database")
		// Another run, or an attempt whose response was lost, may have created the mark, so read it
		// again.
		if err := m.Records.Commit(ctx, w); err != nil && status.Code(err) != codes.AlreadyExists {
			return fmt.Errorf("mark the target's database: %w", err)
		}
	}
	return nil
}

func (m *Move) mine(mark *pb.Document) error {
	switch {
	case mark.GetFields()["id"].GetStringValue() != m.ID:
		return fmt.Errorf("another move has already used the database %s. Use a new database, or delete this one", m.Records.Database)
	case mark.GetFields()["finished"].GetBooleanValue():
		return ErrFinished
	}
	return nil
}

func (m *Move) mark(finished bool) *pb.Write {
	return &pb.Write{Operation: &pb.Write_Update{Update: &pb.Document{Name: m.Records.Name(markPath), Fields: map[string]*pb.Value{
		"id":       {ValueType: &pb.Value_StringValue{StringValue: m.ID}},
		"finished": {ValueType: &pb.Value_BooleanValue{BooleanValue: finished}},
	}}}}
}

func exists(yes bool) *pb.Precondition {
	return &pb.Precondition{ConditionType: &pb.Precondition_Exists{Exists: yes}}
}

func (m *Move) markBucket(ctx context.Context) error {
	var id bytes.Buffer
	_, err := m.Objects.Download(ctx, markObject, 0, &id)
	if errors.Is(err, objectstore.ErrNotFound) {
		for o, err := range m.Objects.List(ctx, "") {
			if err != nil {
				return fmt.Errorf("read the target's bucket: %w", err)
			}
			return fmt.Errorf("the bucket is not empty: it contains the object %s. Use a new bucket", o.Name)
		}
		id.WriteString(m.ID)
		absent := int64(0)
		m.step("mark the bucket")
		_, err = m.Objects.Upload(ctx, markObject, strings.NewReader(m.ID), objectstore.UploadOptions{ContentType: "text/plain", IfGeneration: &absent})
	}
	if err != nil {
		return fmt.Errorf("mark the target's bucket: %w", err)
	}
	if id.String() != m.ID {
		return errors.New("another move has already used the bucket. Use a new bucket, or delete this one")
	}
	return nil
}

// unmarkBucket removes the mark of this move from the bucket.
func (m *Move) unmarkBucket(ctx context.Context) error {
	var id bytes.Buffer
	_, err := m.Objects.Download(ctx, markObject, 0, &id)
	if err == nil && id.String() == m.ID {
		err = m.Objects.Delete(ctx, markObject, 0)
	}
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return fmt.Errorf("remove the mark from the bucket: %w", err)
	}
	return nil
}

// look reads the content of the target.
func (m *Move) look(ctx context.Context) error {
	m.records, m.objects = map[string]record{}, map[string]object{}
	err := m.eachRecord(ctx, func(path string, s sum) error { m.records[path] = record{sum: s}; return nil })
	if err != nil {
		return fmt.Errorf("read the target's database: %w", err)
	}
	err = m.eachObject(ctx, func(o objectstore.Object) error { m.objects[o.Name] = targetObject(o); return nil })
	if err != nil {
		return fmt.Errorf("read the target's bucket: %w", err)
	}
	return nil
}

func targetObject(o objectstore.Object) object {
	x := object{generation: o.Generation, size: o.Size, crc: o.CRC32C}
	if o.Moved != nil {
		x.of = o.Moved.Of
	}
	return x
}

func (m *Move) eachRecord(ctx context.Context, fn func(path string, s sum) error) error {
	return m.Records.Each(ctx, 0, func(d *pb.Document) error {
		path := m.path(d)
		if path == markPath {
			return nil
		}
		s, err := sumOf(d)
		if err != nil {
			return err
		}
		return fn(path, s)
	})
}

func (m *Move) eachObject(ctx context.Context, fn func(objectstore.Object) error) error {
	for o, err := range m.Objects.List(ctx, "") {
		if err != nil {
			return err
		}
		if strings.HasPrefix(o.Name, own) {
			continue
		}
		if err := fn(o); err != nil {
			return err
		}
	}
	return nil
}

func (m *Move) path(d *pb.Document) string {
	return strings.TrimPrefix(d.GetName(), m.Records.Name(""))
}

func sumOf(d *pb.Document) (s sum, err error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.MapValue{Fields: d.GetFields()})
	if err != nil {
		return s, fmt.Errorf("encode %s: %w", d.GetName(), err)
	}
	long := sha256.Sum256(b)
	return sum(long[:len(s)]), nil
}

func (m *Move) step(what string) {
	if m.Step != nil {
		m.Step(what)
	}
}

// attempts is how many times a pass starts over because storage was unavailable.
const attempts = 10

// Pass copies the differences between the source's current state and the target. If storage is
// unavailable while it receives a large object, Pass reads the target again and copies what is still
// missing.
func (m *Move) Pass(ctx context.Context) (did Changes, err error) {
	for n := 1; ; n++ {
		c, err := m.once(ctx)
		did.add(c)
		if !errors.As(err, &cut{}) || n == attempts || !outage.Pause(ctx, time.Second) {
			return did, err
		}
		// We no longer know what the target contains, so read it again.
		if err := patiently(ctx, func() error { return m.Begin(ctx) }); err != nil {
			return did, err
		}
	}
}

func (c *Changes) add(more Changes) {
	c.Records += more.Records
	c.Deleted += more.Deleted
	c.Objects += more.Objects
	c.Bytes += more.Bytes
}

// cut is the error for a large object whose upload failed because storage was unavailable. The
// object's bytes must be read from the source again.
type cut struct{ error }

func (c cut) Unwrap() error { return c.error }

func (m *Move) once(ctx context.Context) (Changes, error) {
	m.pass++
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	p := &pass{Move: m, ctx: gctx, g: g, wanted: map[string]storage.Object{}}
	var have []string
	for _, o := range m.objects {
		if o.of != "" {
			have = append(have, o.of)
		}
	}
	err := backup.Copy(gctx, m.From.URL, m.From.Token, have, backup.Copier{Record: p.record, Entry: p.entry, Blob: p.blob})
	if err == nil {
		err = p.gone()
	}
	// An error from a writer also ends the stream. In that case, report the writer's error.
	if err := cmp.Or(g.Wait(), err); err != nil {
		return p.did, err
	}
	if m.identity == nil {
		return p.did, fmt.Errorf("the source has no document %s; start Linkreel on it once", identityPath)
	}
	err = p.inOrder(ctx)
	return p.did, err
}

// pass is a pass in progress.
type pass struct {
	*Move
	did     Changes
	ctx     context.Context
	g       *errgroup.Group
	writes  []*pb.Write
	size    int
	ordered []*pb.Document
	wanted  map[string]storage.Object // objects with pending bytes, by the bytes' id
}

func (p *pass) record(d *pb.Document) error {
	path, ok := strings.CutPrefix(d.GetName(), p.From.Database+"/documents/")
	if !ok {
		return fmt.Errorf("the source contains a document from a different database: %s", d.GetName())
	}
	p.rename(d, path)
	switch path {
	case identityPath:
		p.identity = d
		return nil
	case markPath: // the mark of the move that filled the source
		return nil
	}
	s, err := sumOf(d)
	if err != nil {
		return err
	}
	before, known := p.records[path]
	p.records[path] = record{s, p.pass}
	if known && before.sum == s {
		return nil
	}
	p.did.Records++
	if segments := strings.Split(path, "/"); slices.Contains(p.Ordered, segments[len(segments)-2]) {
		p.ordered = append(p.ordered, d)
		return nil
	}
	return p.write(&pb.Write{Operation: &pb.Write_Update{Update: d}})
}

// rename gives the document its name in the target and converts its references.
func (p *pass) rename(d *pb.Document, path string) {
	d.Name = p.Records.Name(path)
	for _, v := range d.GetFields() {
		p.refer(v)
	}
}

// nan is NaN as Firestore stores it. Go uses different bits.
var nan = math.Float64frombits(0x7ff8 << 48)

// refer converts references to documents in the source, and NaN, to the target's form.
func (p *pass) refer(v *pb.Value) {
	switch x := v.GetValueType().(type) {
	case *pb.Value_ReferenceValue:
		if rest, ok := strings.CutPrefix(x.ReferenceValue, p.From.Database+"/"); ok {
			x.ReferenceValue = p.Records.Database + "/" + rest
		}
	case *pb.Value_DoubleValue:
		if math.IsNaN(x.DoubleValue) {
			x.DoubleValue = nan
		}
	case *pb.Value_ArrayValue:
		for _, e := range x.ArrayValue.GetValues() {
			p.refer(e)
		}
	case *pb.Value_MapValue:
		for _, e := range x.MapValue.GetFields() {
			p.refer(e)
		}
	}
}

// batchBytes is the size at which writes are sent without waiting for more.
const batchBytes = 2 << 20

func (p *pass) write(w *pb.Write) error {
	p.writes, p.size = append(p.writes, w), p.size+proto.Size(w)
	if len(p.writes) < firestoredb.MaxWrites && p.size < batchBytes {
		return p.ctx.Err()
	}
	return p.flush()
}

func (p *pass) flush() error {
	writes := p.writes
	p.writes, p.size = nil, 0
	if len(writes) == 0 {
		return nil
	}
	p.step("write records")
	p.g.Go(func() error {
		if err := p.Records.Commit(p.ctx, writes...); err != nil {
			return fmt.Errorf("write into the target's database: %w", err)
		}
		return nil
	})
	return p.ctx.Err()
}

// inOrder creates the documents in ordered collections. Documents that were created in one commit
// in the source are created in one commit in the target too.
func (p *pass) inOrder(ctx context.Context) error {
	slices.SortStableFunc(p.ordered, func(a, b *pb.Document) int {
		return a.GetCreateTime().AsTime().Compare(b.GetCreateTime().AsTime())
	})
	for len(p.ordered) > 0 {
		n := 1
		for n < len(p.ordered) && proto.Equal(p.ordered[n].GetCreateTime(), p.ordered[0].GetCreateTime()) {
			n++
		}
		var writes []*pb.Write
		for _, d := range p.ordered[:n] {
			writes = append(writes, &pb.Write{Operation: &pb.Write_Update{Update: d}})
		}
		p.step("write ordered records")
		if err := p.Records.Commit(ctx, writes...); err != nil {
			return fmt.Errorf("write into the target's database: %w", err)
		}
		p.ordered = p.ordered[n:]
	}
	return nil
}

func (p *pass) entry(e storage.Entry) error {
	o, ok, err := e.Object()
	if err != nil || !ok || o.Bucket != p.From.Bucket || strings.HasPrefix(o.Name, own) {
		return err
	}
	crc, err := base64.StdEncoding.DecodeString(o.CRC32C)
	if err != nil || len(crc) != 4 {
		return fmt.Errorf("the object %s has no checksum in the source", o.Name)
	}
	before, known := p.objects[o.Name]
	p.objects[o.Name] = object{o.ID, o.Generation, o.Size, binary.BigEndian.Uint32(crc), p.pass}
	if known && before.of == o.ID {
		return nil
	}
	p.wanted[o.ID] = o
	if known {
		return p.remove(o.Name) // the new object must not replace an existing one
	}
	return nil
}

// small is the size up to which several objects are sent at a time.
const small = 4 << 20

func (p *pass) blob(id string, from io.Reader) error {
	o, ok := p.wanted[id]
	if !ok { // the object is in another bucket or belongs to the bucket itself
		_, err := io.Copy(io.Discard, from)
		return err
	}
	delete(p.wanted, id)
	whole := o.Check(from)
	if o.Size > small {
		if err := p.upload(p.ctx, o, whole); err != nil {
			return err
		}
		p.did.Objects++
		p.did.Bytes += o.Size
		return nil
	}
	p.did.Objects++
	p.did.Bytes += o.Size
	b, err := io.ReadAll(whole)
	if err != nil {
		return err
	}
	p.g.Go(func() error { return p.upload(p.ctx, o, bytes.NewReader(b)) })
	return p.ctx.Err()
}

func (p *pass) upload(ctx context.Context, o storage.Object, from io.Reader) error {
	p.step("upload")
	absent := int64(0)
	err := patiently(ctx, func() error {
		_, err := p.Objects.Upload(ctx, o.Name, from, objectstore.UploadOptions{
			ContentType: o.ContentType, ContentEncoding: o.ContentEncoding, CacheControl: o.CacheControl, IfGeneration: &absent,
			Moved: &objectstore.Moved{Generation: o.Generation, Of: o.ID},
		})
		again, ok := from.(io.Seeker)
		if !ok && apierr.CodeOf(err) == apierr.Unavailable {
			return final(cut{err})
		}
		if !ok || err == nil {
			return final(err)
		}
		_, _ = again.Seek(0, io.SeekStart) // cannot fail because the bytes are in memory
		return err
	})
	if err != nil {
		return fmt.Errorf("write into the target's bucket: %w", err)
	}
	return nil
}

// patience is how long storage may be unavailable. libs/objectstore retries a call for only a few
// seconds.
const patience = 5 * time.Minute

// over is an error that makes [patiently] give up.
type over struct{ error }

func final(err error) error {
	if err == nil {
		return nil
	}
	return over{err}
}

func patiently(ctx context.Context, try func() error) error {
	for end := time.Now().Add(patience); ; {
		err := try()
		if o := (over{}); errors.As(err, &o) {
			return o.error
		}
		if apierr.CodeOf(err) != apierr.Unavailable || time.Now().After(end) || !outage.Pause(ctx, time.Second) {
			return err
		}
	}
}

func (p *pass) remove(name string) error {
	p.step("remove an object")
	if err := patiently(p.ctx, func() error { return p.Objects.Delete(p.ctx, name, 0) }); err != nil {
		return fmt.Errorf("delete from the target's bucket: %w", err)
	}
	return nil
}

// gone deletes everything that the source no longer contains and sends the last writes.
func (p *pass) gone() error {
	for path, r := range p.records {
		if r.pass == p.pass {
			continue
		}
		delete(p.records, path)
		p.did.Deleted++
		if err := p.write(&pb.Write{Operation: &pb.Write_Delete{Delete: p.Records.Name(path)}}); err != nil {
			return err
		}
	}
	for name, o := range p.objects {
		if o.pass == p.pass {
			continue
		}
		delete(p.objects, name)
		p.did.Objects++
		if err := p.remove(name); err != nil {
			return err
		}
	}
	if len(p.wanted) > 0 {
		return errors.New("the source did not send all objects")
	}
	return p.flush()
}

// Verify reads the whole target and compares it with the source's state at the last pass. It
// compares documents by their checksums, and objects by their sizes and the checksums that storage
// has computed.
func (m *Move) Verify(ctx context.Context) (t Totals, err error) {
	var lines []string
	err = m.eachRecord(ctx, func(path string, s sum) error {
		if want, ok := m.records[path]; !ok || want.sum != s {
			return m.differs("document " + path)
		}
		t.Records++
		lines = append(lines, path+" "+hex.EncodeToString(s[:]))
		return nil
	})
	if err != nil {
		return t, fmt.Errorf("verify: %w", err)
	}
	err = m.eachObject(ctx, func(o objectstore.Object) error {
		got := targetObject(o)
		got.pass = m.pass
		if want, ok := m.objects[o.Name]; !ok || got != want {
			return m.differs("object " + o.Name)
		}
		t.Objects++
		t.Bytes += o.Size
		lines = append(lines, fmt.Sprintf("%s %d %08x", o.Name, o.Size, o.CRC32C))
		return nil
	})
	if err != nil {
		return t, fmt.Errorf("verify: %w", err)
	}
	if t.Records != len(m.records) || t.Objects != len(m.objects) {
		return t, fmt.Errorf("verify: the target has %d documents and %d objects, but the source has %d and %d", t.Records, t.Objects, len(m.records), len(m.objects))
	}
	slices.Sort(lines)
	all := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	t.Checksum = hex.EncodeToString(all[:8])
	return t, nil
}

func (m *Move) differs(what string) error {
	return fmt.Errorf("the %s in the target differs from the source. Is another program writing to %s or its bucket?", what, m.Records.Database)
}

// Finish gives the target an identity, so services can use it.
func (m *Move) Finish(ctx context.Context) error {
	id := m.identity.GetFields()["id"].GetStringValue()
	m.step("claim the bucket")
	if err := m.Objects.Claim(ctx, m.Records.Database+"#"+id); err != nil {
		return err
	}
	m.step("finish")
	if err := m.Records.Commit(ctx, &pb.Write{Operation: &pb.Write_Update{Update: m.identity}}, m.mark(true)); err != nil {
		return fmt.Errorf("write the target's identity: %w", err)
	}
	m.step("finished")
	return m.unmarkBucket(ctx)
}
