package storage

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/guard"
)

// APIHandler serves the JSON API to callers that send a token from Options.Token. Use it only on a
// private listener. The same token allows unsigned reads through the XML API, which the Go client
// uses by default. The following paths do not need a token: /livez, /readyz and /healthz, the
// public keys for push tokens at /oauth2/v3/certs, and /token. The last of these returns the token
// to programs that prove that they have the service account key.
//
// APIHandler rejects requests that a web page may have caused. The host must be an IP address or a
// name that public DNS cannot resolve (see Options.APIHosts), and the browser must not have marked
// the request as coming from another site.
func (s *Server) APIHandler() http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") } // open to every caller
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Ready(); err != nil {
			s.log.ErrorContext(r.Context(), "storage: not ready", "error", err)
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		alive(w, r)
	})
	mux.HandleFunc("POST /token", s.token)
	mux.HandleFunc("GET /oauth2/v3/certs", s.certs)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !s.tokens.Accept(r.Header.Get("Authorization")) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeJSONError(w, fail(http.StatusUnauthorized, "AuthenticationRequired", "This API requires the server's bearer token."))
			return
		}
		path, kind := r.URL.EscapedPath(), ""
		for _, k := range []string{"/upload", "/download"} {
			if rest, ok := strings.CutPrefix(path, k+"/storage/v1/"); ok {
				path, kind = "/storage/v1/"+rest, k[1:]
			}
		}
		rest, ok := strings.CutPrefix(path, "/storage/v1/")
		if !ok {
			s.plainRead(w, r)
			return
		}
		call := route(r, kind, rest)
		s.faults.wrap(call.name, call.bucket, call.object, w, r, func(w http.ResponseWriter, r *http.Request) {
			if err := s.api(w, r, call); err != nil {
				writeJSONError(w, s.asAPIError(r, err))
			}
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.ownCaller(r); err != nil {
			writeJSONError(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ownCaller rejects requests that a web page in a browser may have caused.
func (s *Server) ownCaller(r *http.Request) *apiError {
	if !guard.OwnHost(r.Host, s.apiHosts...) {
		return fail(http.StatusMisdirectedRequest, "Misdirected", "The host %q does not belong to this server. If it should, add it to the server's configuration.", r.Host)
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return fail(http.StatusForbidden, "AccessDenied", "Pages on other sites cannot call this API.")
	}
	return nil
}

func (s *Server) plainRead(w http.ResponseWriter, r *http.Request) {
	bucketName, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.faults.wrap(xmlCall(r, name), bucketName, name, w, r, func(w http.ResponseWriter, r *http.Request) {
		c, err := headerCond(r.Header)
		if err == nil {
			if name == "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
				err = fail(405, "MethodNotAllowed", "The private listener's XML API can only read objects.")
			} else {
				err = s.serve(w, r, bucketName, name, c)
			}
		}
		if err != nil {
			writeXMLError(w, r, s.asAPIError(r, err))
		}
	})
}

// apiCall is a call to the JSON API. Its name comes from the API's documentation.
type apiCall struct {
	name, bucket, object  string
	dstBucket, dstObject  string
	isUpload, isMediaRead bool
}

// route determines which call a request makes. It splits the escaped path because object names may
// contain %2F.
func route(r *http.Request, kind, path string) (c apiCall) {
	p := strings.Split(path, "/")
	for i := range p {
		v, err := url.PathUnescape(p[i])
		if err != nil {
			return c
		}
		p[i] = v
	}
	at := func(i int, v string) bool { return len(p) > i && p[i] == v }
	if !at(0, "b") {
		return c
	}
	if len(p) > 1 {
		c.bucket = p[1]
	}
	if len(p) > 3 && p[2] == "o" {
		c.object = p[3]
	}
	c.isUpload = kind == "upload"
	m := r.Method
	switch {
	case c.isUpload && len(p) == 3 && at(2, "o") && r.URL.Query().Get("upload_id") != "":
		c.name = "objects.session"
	case c.isUpload && len(p) == 3 && at(2, "o") && (m == "POST" || m == "PUT"):
		c.name = "objects.insert"
	case c.isUpload:
	case len(p) == 1 && m == "POST":
		c.name = "buckets.insert"
	case len(p) == 1 && m == "GET":
		c.name = "buckets.list"
	case len(p) == 2:
		c.name = map[string]string{"GET": "buckets.get", "PATCH": "buckets.patch", "PUT": "buckets.update", "DELETE": "buckets.delete"}[m]
	case len(p) == 3 && at(2, "o") && m == "GET":
		c.name = "objects.list"
	case len(p) == 4 && at(2, "o"):
		c.isMediaRead = m == "GET" && (r.URL.Query().Get("alt") == "media" || kind == "download")
		c.name = map[string]string{"GET": "objects.get", "PATCH": "objects.patch", "PUT": "objects.update", "DELETE": "objects.delete"}[m]
		if c.isMediaRead {
			c.name = "objects.media"
		}
	case len(p) == 5 && at(2, "o") && at(4, "compose") && m == "POST":
		c.name = "objects.compose"
	case len(p) == 9 && at(2, "o") && (at(4, "rewriteTo") || at(4, "copyTo")) && at(5, "b") && at(7, "o") && m == "POST":
		c.name = "objects." + strings.TrimSuffix(p[4], "To")
		c.dstBucket, c.dstObject = p[6], p[8]
	}
	return c
}

func (s *Server) api(w http.ResponseWriter, r *http.Request, call apiCall) error {
	q := r.URL.Query()
	c, err := queryCond(q, "if")
	if err != nil {
		return err
	}
	gen, err := generation(q, "generation")
	if err != nil {
		return err
	}
	switch call.name {
	case "buckets.insert":
		return s.insertBucket(w, r)
	case "buckets.list":
		return s.listBuckets(w, q)
	case "buckets.get":
		b, err := s.st.bucket(call.bucket)
		if err == nil {
			err = c.check(&object{Metageneration: b.Metageneration})
		}
		if err != nil {
			return err
		}
		return writeJSON(w, b.resource())
	case "buckets.patch", "buckets.update":
		return s.editBucket(w, r, call, c)
	case "buckets.delete":
		if err := s.st.deleteBucket(call.bucket, c); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	case "objects.session":
		return s.resume(w, r, q.Get("upload_id"), "", "")
	case "objects.insert":
		return s.insert(w, r, call.bucket, c)
	case "objects.list":
		return s.listObjects(w, q, call.bucket)
	case "objects.media":
		o, err := s.st.find(call.bucket, call.object, gen, c)
		if err != nil {
			return err
		}
		return s.serve(w, r, call.bucket, call.object, cond{Gen: &o.Generation})
	case "objects.get":
		o, err := s.st.find(call.bucket, call.object, gen, c)
		if err != nil {
			return err
		}
		return writeJSON(w, o.resource())
	case "objects.delete":
		if err := s.st.delete(call.bucket, call.object, gen, c); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	case "objects.patch", "objects.update":
		return s.editObject(w, r, call, gen, c)
	case "objects.rewrite", "objects.copy":
		return s.rewrite(w, r, call, c)
	case "objects.compose":
		return s.compose(w, r, call, c)
	}
	return fail(501, "NotImplemented", "Not implemented: %s %s", r.Method, r.URL.Path)
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	return json.NewEncoder(w).Encode(v)
}

// resource returns o as a JSON API resource.
func (o *object) resource() any {
	c := *o
	c.Blob = ""
	return struct {
		Kind      string `json:"kind"`
		ID        string `json:"id"`
		SelfLink  string `json:"selfLink"`
		MediaLink string `json:"mediaLink"`
		object
	}{"storage#object", fmt.Sprintf("%s/%s/%d", o.Bucket, o.Name, o.Generation),
		fmt.Sprintf("/storage/v1/b/%s/o/%s", o.Bucket, url.PathEscape(o.Name)),
		fmt.Sprintf("/download/storage/v1/b/%s/o/%s?generation=%d&alt=media", o.Bucket, url.PathEscape(o.Name), o.Generation), c}
}

func (b *bucket) resource() any {
	return struct {
		Kind string `json:"kind"`
		ID   string `json:"id"`
		ETag string `json:"etag"`
		*bucket
	}{"storage#bucket", b.Name, base64.StdEncoding.EncodeToString([]byte(strconv.FormatInt(b.Metageneration, 10))), b}
}

// body decodes a small JSON body. An empty body does not change v.
func body(r io.Reader, v any) error {
	if err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(v); err != nil && err != io.EOF {
		return fail(400, "InvalidArgument", "Parse error: %v", err)
	}
	return nil
}

func (s *Server) insertBucket(w http.ResponseWriter, r *http.Request) error {
	var b bucket
	if err := body(r.Body, &b); err != nil {
		return err
	}
	made, err := s.st.createBucket(bucket{Name: b.Name, Location: b.Location, CORS: b.CORS, Labels: b.Labels})
	if err != nil {
		return err
	}
	return writeJSON(w, made.resource())
}

func (s *Server) listBuckets(w http.ResponseWriter, q url.Values) error {
	all, err := s.st.buckets(q.Get("prefix"))
	if err != nil {
		return err
	}
	items := []any{}
	for _, b := range all {
		items = append(items, b.resource())
	}
	return writeJSON(w, map[string]any{"kind": "storage#buckets", "items": items})
}

func (s *Server) editBucket(w http.ResponseWriter, r *http.Request, call apiCall, c cond) error {
	var patch struct {
		CORS   *[]CORS            `json:"cors"`
		Labels map[string]*string `json:"labels"`
	}
	if err := body(r.Body, &patch); err != nil {
		return err
	}
	b, err := s.st.amendBucket(call.bucket, c, func(b *bucket) error {
		replace := call.name == "buckets.update"
		if replace {
			b.CORS, b.Labels = nil, nil
		}
		if patch.CORS != nil {
			b.CORS = *patch.CORS
		}
		b.Labels = patchMap(b.Labels, patch.Labels)
		return nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, b.resource())
}

// patchMap sets the given keys and removes those with the value null.
func patchMap(m map[string]string, patch map[string]*string) map[string]string {
	m = maps.Clone(m)
	for k, v := range patch {
		if v == nil {
			delete(m, k)
			continue
		}
		if m == nil {
			m = map[string]string{}
		}
		m[k] = *v
	}
	return m
}

func (s *Server) listObjects(w http.ResponseWriter, q url.Values, bucketName string) error {
	if q.Get("matchGlob") != "" || q.Get("versions") == "true" || q.Get("softDeleted") == "true" || q.Get("filter") != "" {
		return fail(501, "NotImplemented", "matchGlob, filter, versions and softDeleted are not implemented.")
	}
	l := listing{prefix: q.Get("prefix"), delimiter: q.Get("delimiter"), start: q.Get("startOffset"), end: q.Get("endOffset"),
		trailing: q.Get("includeTrailingDelimiter") == "true", limit: 1000}
	if v := q.Get("maxResults"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return fail(400, "InvalidArgument", "Invalid maxResults: %q", v)
		}
		if n > 0 && n < l.limit {
			l.limit = n
		}
	}
	token, err := hex.DecodeString(q.Get("pageToken"))
	if err != nil || len(token) == 1 || len(token) > 0 && !strings.HasPrefix(string(token), tokenName) && !strings.HasPrefix(string(token), tokenPrefix) {
		return fail(400, "InvalidArgument", "Invalid pageToken.")
	}
	l.token = string(token)
	objs, prefixes, next, err := s.st.list(bucketName, l)
	if err != nil {
		return err
	}
	out := map[string]any{"kind": "storage#objects"}
	if len(objs) > 0 {
		items := make([]any, len(objs))
		for i, o := range objs {
			items[i] = o.resource()
		}
		out["items"] = items
	}
	if len(prefixes) > 0 {
		out["prefixes"] = prefixes
	}
	if next != "" {
		out["nextPageToken"] = hex.EncodeToString([]byte(next))
	}
	return writeJSON(w, out)
}

// resourceBody is an object resource in a request body. A pointer is nil if the field is absent.
type resourceBody struct {
	Name, Md5Hash, Crc32c                                                           string
	ContentType, ContentEncoding, ContentDisposition, ContentLanguage, CacheControl json.RawMessage
	Metadata                                                                        json.RawMessage
	CustomTime                                                                      json.RawMessage
}

// apply changes o according to b: a value sets a field, null clears it, and an absent field is left
// unchanged.
func (b resourceBody) apply(o *object) error {
	for _, f := range []struct {
		raw json.RawMessage
		dst *string
	}{{b.ContentType, &o.ContentType}, {b.ContentEncoding, &o.ContentEncoding}, {b.ContentDisposition, &o.ContentDisposition},
		{b.ContentLanguage, &o.ContentLanguage}, {b.CacheControl, &o.CacheControl}} {
		if f.raw == nil {
			continue
		}
		v := ""
		if err := json.Unmarshal(f.raw, &v); err != nil { // null leaves v empty
			return fail(400, "InvalidArgument", "Invalid value: %v", err)
		}
		*f.dst = v
	}
	if b.CustomTime != nil {
		var t *time.Time
		if err := json.Unmarshal(b.CustomTime, &t); err != nil {
			return fail(400, "InvalidArgument", "Invalid customTime: %v", err)
		}
		if o.CustomTime != nil && (t == nil || t.Before(*o.CustomTime)) {
			return fail(400, "InvalidArgument", "customTime cannot be removed or moved back.")
		}
		o.CustomTime = t
	}
	if b.Metadata != nil {
		var m map[string]*string
		if err := json.Unmarshal(b.Metadata, &m); err != nil {
			return fail(400, "InvalidArgument", "Invalid metadata: %v", err)
		}
		if o.Metadata = patchMap(o.Metadata, m); m == nil || len(o.Metadata) == 0 {
			o.Metadata = nil
		}
	}
	return nil
}

func (s *Server) editObject(w http.ResponseWriter, r *http.Request, call apiCall, gen int64, c cond) error {
	var b resourceBody
	if err := body(r.Body, &b); err != nil {
		return err
	}
	o, err := s.st.amend(call.bucket, call.object, gen, c, func(o *object) error {
		// An update replaces all fields that a caller may set. A patch replaces only the fields in
		// the request. As in Cloud Storage, neither removes customTime.
		if call.name == "objects.update" {
			o.ContentType, o.ContentEncoding, o.ContentDisposition, o.ContentLanguage, o.CacheControl, o.Metadata = "", "", "", "", "", nil
		}
		return b.apply(o)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, o.resource())
}

func (s *Server) rewrite(w http.ResponseWriter, r *http.Request, call apiCall, c cond) error {
	q := r.URL.Query()
	srcGen, err := generation(q, "sourceGeneration")
	if err != nil {
		return err
	}
	srcCond, err := queryCond(q, "ifSource")
	if err != nil {
		return err
	}
	var b resourceBody
	if err := body(r.Body, &b); err != nil {
		return err
	}
	src, err := s.st.find(call.bucket, call.object, srcGen, srcCond)
	if err != nil {
		return err
	}
	dst := object{Bucket: call.dstBucket, Name: call.dstObject}
	if b.ContentType == nil && b.Metadata == nil && b.ContentEncoding == nil && b.ContentDisposition == nil && b.ContentLanguage == nil && b.CacheControl == nil {
		dst.ContentType, dst.ContentEncoding, dst.ContentDisposition = src.ContentType, src.ContentEncoding, src.ContentDisposition
		dst.ContentLanguage, dst.CacheControl, dst.Metadata, dst.CustomTime = src.ContentLanguage, src.CacheControl, src.Metadata, src.CustomTime
	} else if err := b.apply(&dst); err != nil { // metadata in the request replaces all of the source's metadata
		return err
	}
	o, err := s.st.copyOf(src, dst, c)
	if err != nil {
		return err
	}
	if call.name == "objects.copy" {
		return writeJSON(w, o.resource())
	}
	size := strconv.FormatInt(o.Size, 10)
	return writeJSON(w, map[string]any{"kind": "storage#rewriteResponse", "done": true, "objectSize": size, "totalBytesRewritten": size, "resource": o.resource()})
}

// maxComponents is the maximum number of objects in one compose.
const maxComponents = 32

func (s *Server) compose(w http.ResponseWriter, r *http.Request, call apiCall, c cond) error {
	var b struct {
		SourceObjects []struct {
			Name                string
			Generation          json.Number
			ObjectPreconditions struct{ IfGenerationMatch json.Number }
		}
		Destination resourceBody
	}
	if err := body(r.Body, &b); err != nil {
		return err
	}
	if n := len(b.SourceObjects); n == 0 || n > maxComponents {
		return fail(400, "InvalidArgument", "The number of source components provided (%d) must be between 1 and %d.", n, maxComponents)
	}
	var sources []*object
	for _, src := range b.SourceObjects {
		gen, err := number(src.Generation.String())
		if err != nil {
			return err
		}
		match, err := number(src.ObjectPreconditions.IfGenerationMatch.String())
		if err != nil {
			return err
		}
		if gen == nil {
			gen = new(int64)
		}
		o, err := s.st.find(call.bucket, src.Name, *gen, cond{Gen: match})
		if err != nil {
			return err
		}
		sources = append(sources, o)
	}
	dst := object{Bucket: call.bucket, Name: call.object}
	if err := b.Destination.apply(&dst); err != nil {
		return err
	}
	if dst.ContentType == "" {
		dst.ContentType = sources[0].ContentType
	}
	o, err := s.st.compose(sources, dst, c)
	if err != nil {
		return err
	}
	return writeJSON(w, o.resource())
}

// insert accepts an upload in any of the JSON API's three formats.
func (s *Server) insert(w http.ResponseWriter, r *http.Request, bucketName string, c cond) error {
	q := r.URL.Query()
	var b resourceBody
	wish := wish{cond: c, object: object{Bucket: bucketName, ContentEncoding: q.Get("contentEncoding")}}
	apply := func(rd io.Reader) error {
		if err := body(rd, &b); err != nil {
			return err
		}
		if err := b.apply(&wish.object); err != nil {
			return err
		}
		wish.md5, wish.crc = b.Md5Hash, b.Crc32c
		return nil
	}
	media := io.Reader(r.Body)
	var fallbackType string // the part's content type, used if the metadata contains none
	switch q.Get("uploadType") {
	case "resumable":
		if err := apply(r.Body); err != nil {
			return err
		}
		fallbackType = r.Header.Get("X-Upload-Content-Type")
	case "multipart":
		_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || params["boundary"] == "" {
			return fail(400, "InvalidArgument", "A multipart upload needs a boundary.")
		}
		parts := multipart.NewReader(r.Body, params["boundary"])
		meta, err := parts.NextRawPart()
		if err != nil {
			return fail(400, "InvalidArgument", "Missing metadata part: %v", err)
		}
		if err := apply(meta); err != nil {
			return err
		}
		part, err := parts.NextRawPart()
		if err != nil {
			return fail(400, "InvalidArgument", "Missing media part: %v", err)
		}
		media, fallbackType = part, part.Header.Get("Content-Type")
	case "media":
		fallbackType = r.Header.Get("Content-Type")
	default:
		return fail(400, "InvalidArgument", "uploadType must be media, multipart or resumable.")
	}
	o := &wish.object
	if o.Name = q.Get("name"); o.Name == "" {
		o.Name = b.Name
	}
	if o.ContentType == "" {
		o.ContentType = fallbackType
	}
	// Before reading the media, reject a request that cannot succeed. The commit checks c again
	// because the object may change before then.
	cur, err := s.st.get(bucketName, o.Name)
	if err == nil {
		err = c.check(cur)
	}
	if err != nil {
		return err
	}
	// Pass true below: only our own programs use the JSON API, and they may use half of the
	// reserve.
	if q.Get("uploadType") == "resumable" {
		expect, err := uploadLength(r.Header)
		if err != nil {
			return err
		}
		id, err := s.sessions.start(wish, 0, maxObject, expect, true)
		if err != nil {
			return err
		}
		w.Header().Set("Location", fmt.Sprintf("http://%s/upload/storage/v1/b/%s/o?uploadType=resumable&upload_id=%s", r.Host, url.PathEscape(bucketName), id))
		w.Header().Set("X-GUploader-UploadID", id)
		return nil
	}
	made, err := s.take(media, wish, 0, maxObject, true, r.ContentLength)
	if err != nil {
		return err
	}
	return writeJSON(w, made.resource())
}

func md5Hex(b64 string) string {
	sum, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(sum)
}
