package storage

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// PublicHandler serves the XML API. It may be exposed to the Internet. Apart from CORS preflights,
// it rejects every request without a valid V4 signature or the URI of a session that a signed
// request has started. Give its http.Server a ReadHeaderTimeout but no ReadTimeout because uploads
// may take arbitrarily long. A load balancer that requests "/" receives a 200.
func (s *Server) PublicHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "/" && r.Header.Get("Authorization") == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = io.WriteString(w, "ok\n")
			return
		}
		bucketName, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		call := xmlCall(r, name)
		s.faults.wrap(call, bucketName, name, w, r, func(w http.ResponseWriter, r *http.Request) {
			s.cors(w, r, bucketName)
			if err := s.public(w, r, bucketName, name); err != nil {
				writeXMLError(w, r, s.asAPIError(r, err))
			}
		})
	})
}

// xmlCall returns a call's name. Faults use this name to select calls.
func xmlCall(r *http.Request, name string) string {
	// The order matters: a preflight for an upload session also contains the session's ID but is
	// not a call on the session.
	switch {
	case r.Method == http.MethodOptions:
		return "xml.preflight"
	case r.URL.Query().Has("upload_id"):
		return "xml.session"
	case r.Method == http.MethodPost:
		return "xml.start"
	case name == "":
		return "xml.bucket"
	}
	return "xml." + strings.ToLower(r.Method)
}

func (s *Server) public(w http.ResponseWriter, r *http.Request, bucketName, name string) error {
	if r.Method == http.MethodOptions {
		return nil // s.cors has already set the CORS headers
	}
	if id := r.URL.Query().Get("upload_id"); id != "" {
		return s.resume(w, r, id, bucketName, name)
	}
	if err := verify(r, s.clock(), s.keys); err != nil {
		return err
	}
	if name == "" {
		return fail(501, "NotImplemented", "Bucket operations are served by the JSON API only.")
	}
	c, err := headerCond(r.Header)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return s.serve(w, r, bucketName, name, c)
	case http.MethodDelete:
		gen, err := generation(r.URL.Query(), "generation")
		if err != nil {
			return err
		}
		if err := s.st.delete(bucketName, name, gen, c); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPut, http.MethodPost:
		return s.receive(w, r, bucketName, name, c)
	}
	return fail(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}

// receive accepts a signed upload, either the bytes (PUT) or the request for a session to send them
// (POST).
func (s *Server) receive(w http.ResponseWriter, r *http.Request, bucketName, name string, c cond) error {
	for _, p := range []string{"uploads", "uploadId", "acl", "cors", "compose", "tagging"} {
		if r.URL.Query().Has(p) {
			return fail(501, "NotImplemented", "The subresource %s is not implemented.", p)
		}
	}
	if r.Header.Get("x-goog-copy-source") != "" {
		return fail(501, "NotImplemented", "Copies are served by the JSON API only.")
	}
	lo, hi, err := lengthRange(r.Header.Get("x-goog-content-length-range"))
	if err != nil {
		return err
	}
	hi = min(hi, s.maxUpload)
	wish, err := headerWish(r, bucketName, name)
	if err != nil {
		return err
	}
	wish.cond = c
	cur, err := s.st.get(bucketName, name) // check before reading the body
	if err == nil {
		err = c.check(cur)
	}
	if err != nil {
		return err
	}
	if r.Method == http.MethodPost {
		if r.Header.Get("x-goog-resumable") != "start" {
			return fail(400, "InvalidArgument", "x-goog-resumable: start is required.")
		}
		expect, err := uploadLength(r.Header)
		if err == nil && expect > hi {
			err = inRange(expect, lo, hi)
		}
		if err != nil {
			return err
		}
		id, err := s.sessions.start(wish, lo, hi, expect, false)
		if err != nil {
			return err
		}
		base := s.publicURL
		if base == "" {
			base = "http://" + r.Host
		}
		w.Header().Set("Location", fmt.Sprintf("%s/%s/%s?upload_id=%s", base, bucketName, (&url.URL{Path: name}).EscapedPath(), id))
		w.Header().Set("X-GUploader-UploadID", id)
		w.WriteHeader(http.StatusCreated)
		return nil
	}
	if r.ContentLength > hi {
		return inRange(r.ContentLength, lo, hi)
	}
	o, err := s.take(r.Body, wish, lo, hi, false, r.ContentLength)
	if err != nil {
		return err
	}
	o.headers(w.Header())
	return nil
}

// uploadLength returns the declared length of the object that a session will create, or 0 if the
// client does not declare it.
func uploadLength(h http.Header) (int64, error) {
	v := h.Get("X-Upload-Content-Length")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, fail(400, "InvalidArgument", "Invalid X-Upload-Content-Length: %q", v)
	}
	return n, nil
}

// take stores a complete body as an object. length is the length that the request states, or
// negative if the request does not state one.
func (s *Server) take(body io.Reader, wish wish, lo, hi int64, own bool, length int64) (*object, error) {
	if err := checkName(wish.object.Name); err != nil {
		return nil, err
	}
	u, err := s.st.newUpload(own, max(length, 0))
	if err != nil {
		return nil, err
	}
	if err := u.fill(body, hi+1); err != nil {
		u.discard()
		return nil, err
	}
	if err := inRange(u.n, lo, hi); err != nil {
		u.discard()
		return nil, err
	}
	return s.st.commit(u, wish)
}

func headerWish(r *http.Request, bucketName, name string) (wish, error) {
	h := r.Header
	w := wish{md5: h.Get("Content-MD5"), object: object{Bucket: bucketName, Name: name, ContentType: h.Get("Content-Type"),
		ContentEncoding: h.Get("Content-Encoding"), ContentDisposition: h.Get("Content-Disposition"),
		ContentLanguage: h.Get("Content-Language"), CacheControl: h.Get("Cache-Control")}}
	size := 0
	for k, v := range h {
		if k, ok := strings.CutPrefix(strings.ToLower(k), "x-goog-meta-"); ok {
			if w.object.Metadata == nil {
				w.object.Metadata = map[string]string{}
			}
			w.object.Metadata[k] = strings.Join(v, ",")
			size += len(k) + len(v[0])
		}
	}
	if size > 8<<10 {
		return w, fail(400, "MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size.")
	}
	for _, line := range h.Values("x-goog-hash") {
		for v := range strings.SplitSeq(line, ",") {
			if crc, ok := strings.CutPrefix(strings.TrimSpace(v), "crc32c="); ok {
				w.crc = crc
			} else if md5, ok := strings.CutPrefix(strings.TrimSpace(v), "md5="); ok {
				w.md5 = md5
			}
		}
	}
	return w, nil
}

func lengthRange(v string) (lo, hi int64, err error) {
	if v == "" {
		return 0, maxObject, nil
	}
	a, b, ok := strings.Cut(v, ",")
	lo, e1 := strconv.ParseInt(strings.TrimSpace(a), 10, 64)
	hi, e2 := strconv.ParseInt(strings.TrimSpace(b), 10, 64)
	if !ok || e1 != nil || e2 != nil || lo < 0 || hi < lo {
		return 0, 0, fail(400, "InvalidArgument", "Invalid x-goog-content-length-range.")
	}
	return lo, min(hi, maxObject), nil
}

func inRange(n, lo, hi int64) error {
	if n > hi {
		return fail(400, "EntityTooLarge", "Your proposed upload is larger than the maximum object size.")
	}
	if n < lo {
		return fail(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum object size.")
	}
	return nil
}

func number(v string) (*int64, error) {
	if v == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return nil, fail(400, "InvalidArgument", "Invalid precondition or generation: %q", v)
	}
	return &n, nil
}

func generation(q url.Values, name string) (int64, error) {
	n, err := number(q.Get(name))
	if n == nil {
		return 0, err
	}
	return *n, nil
}

func headerCond(h http.Header) (c cond, err error) {
	var e1, e2 error
	c.Gen, e1 = number(h.Get("x-goog-if-generation-match"))
	c.Meta, e2 = number(h.Get("x-goog-if-metageneration-match"))
	return c, errors.Join(e1, e2)
}

func queryCond(q url.Values, prefix string) (c cond, err error) {
	var e [4]error
	c.Gen, e[0] = number(q.Get(prefix + "GenerationMatch"))
	c.NotGen, e[1] = number(q.Get(prefix + "GenerationNotMatch"))
	c.Meta, e[2] = number(q.Get(prefix + "MetagenerationMatch"))
	c.NotMeta, e[3] = number(q.Get(prefix + "MetagenerationNotMatch"))
	return c, errors.Join(e[:]...)
}

// headers sets the object headers that both APIs send.
func (o *object) headers(h http.Header) {
	// As in production, the ETag is the MD5 in hex. A composed object has no MD5.
	tag := strings.Trim(o.ETag, "=")
	if o.MD5 != "" {
		tag = md5Hex(o.MD5)
	}
	h.Set("ETag", `"`+tag+`"`)
	h.Set("X-Goog-Generation", strconv.FormatInt(o.Generation, 10))
	h.Set("X-Goog-Metageneration", strconv.FormatInt(o.Metageneration, 10))
	h.Set("X-Goog-Storage-Class", o.StorageClass)
	hashes := []string{"crc32c=" + o.CRC32C}
	if o.MD5 != "" {
		hashes = append(hashes, "md5="+o.MD5)
	}
	h["X-Goog-Hash"] = hashes
	h.Set("X-Goog-Stored-Content-Length", strconv.FormatInt(o.Size, 10))
	h.Set("X-Goog-Stored-Content-Encoding", "identity")
	if o.ContentEncoding != "" {
		h.Set("X-Goog-Stored-Content-Encoding", o.ContentEncoding)
	}
	if o.Components > 0 {
		h.Set("X-Goog-Component-Count", strconv.FormatInt(o.Components, 10))
	}
}

// serve responds with an object's bytes, or with the part requested by Range.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, bucketName, name string, c cond) error {
	q := r.URL.Query()
	gen, err := generation(q, "generation")
	if err != nil {
		return err
	}
	o, f, err := s.st.open(bucketName, name, gen, c)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := w.Header()
	o.headers(h)
	for _, x := range []struct{ header, value, override string }{
		{"Content-Type", o.ContentType, "response-content-type"},
		{"Content-Disposition", o.ContentDisposition, "response-content-disposition"},
		{"Content-Language", o.ContentLanguage, ""},
		{"Content-Encoding", o.ContentEncoding, ""},
		{"Cache-Control", o.CacheControl, ""},
	} {
		if x.override != "" && q.Get(x.override) != "" {
			x.value = q.Get(x.override)
		}
		if x.value != "" {
			h.Set(x.header, x.value)
		}
	}
	for k, v := range o.Metadata {
		h.Set("X-Goog-Meta-"+k, v)
	}
	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range") // like production, return the whole object for several ranges
	}
	http.ServeContent(w, r, "", o.Updated, f) // handles Range, If-Range and If-None-Match, and uses sendfile
	return nil
}
