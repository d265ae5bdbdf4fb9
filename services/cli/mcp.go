package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func mcpCommands() []command {
	return []command{{"mcp", "", "serve the API to an assistant over the Model Context Protocol", mcpServe}}
}

func mcpServe(a *app, fs *flag.FlagSet) action {
	t := tools{app: a}
	fs.StringVar(&t.folder, "files", "", "offer the upload_video tool, only for files in this `folder`")
	fs.BoolVar(&t.readOnly, "read-only", false, "offer only read-only tools")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		var err error
		if t.client, err = a.connect(); err != nil {
			return err
		}
		if t.folder != "" {
			if t.folder, err = filepath.EvalSymlinks(t.folder); err != nil {
				return err
			}
			if t.folder, err = filepath.Abs(t.folder); err != nil {
				return err
			}
		}
		out := &lockedWriter{w: a.env.Out}
		return t.server().Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(onlyJSON(a.env.In, out)), Writer: keepOpen{out}})
	}
}

// keepOpen keeps standard output open when a session ends.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// lockedWriter keeps protocol messages and onlyJSON's responses from interleaving.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// onlyJSON passes JSON lines through and responds to all other lines with -32700, as JSON-RPC
// requires. Without it, the library's reader would end the session.
func onlyJSON(in io.Reader, out io.Writer) io.Reader {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewReader(in)
		for {
			line, err := lines.ReadBytes('\n')
			if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
				if json.Valid(trimmed) {
					if _, werr := w.Write(append(trimmed, '\n')); werr != nil {
						return // the session has ended
					}
				} else if _, werr := io.WriteString(
					out, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the line is not JSON"}}`+"\n",
				); werr != nil {
					_ = w.CloseWithError(werr)
					return
				}
			}
			if err != nil {
				_ = w.CloseWithError(err) // io.EOF ends the session
				return
			}
		}
	}()
	return r
}

var coded = regexp.MustCompile(`^[A-Z][A-Z_]+: `)

// codedErrors rewrites the library's schema errors in our own error format: first a code,
// then what to change.
func codedErrors(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		call, ok := res.(*mcp.CallToolResult)
		if err != nil || !ok || call == nil || !call.IsError {
			return res, err
		}
		for _, c := range call.Content {
			if text, ok := c.(*mcp.TextContent); ok && !coded.MatchString(text.Text) {
				// The schema library formats a null argument as "<invalid reflect.Value>".
				text.Text = "INVALID_ARGUMENT: " + strings.ReplaceAll(text.Text, "<invalid reflect.Value>", "the value")
			}
		}
		return res, nil
	}
}

// tools contains the operations that an assistant can perform on a key's account. The results only
// contain data that anybody may see. They never contain keys, passwords or signed URLs, which are
// also credentials.
type tools struct {
	*app
	client   *client.Client
	folder   string // the folder for uploads; if empty, none of the tools read local files
	readOnly bool
}

const instructions = `Linkreel makes short links and shareable videos. Tools that take the id of a link also take its short URL or its slug;
those that take the id of a video (vid_…) also take its share URL. find_links and find_videos search.
Errors start with a code: VALIDATION_ERROR names the wrong fields, SLUG_TAKEN asks for another slug,
PLAN_REQUIRED and INSUFFICIENT_SCOPE need another plan or key.
The shareUrl of a video works at once; its page shows progress until the video is ready.`

// These hints tell the assistant what a tool may do, so it can decide whether to ask the user first.
var (
	reads   = &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)}
	adds    = &mcp.ToolAnnotations{DestructiveHint: new(bool)}
	changes = &mcp.ToolAnnotations{IdempotentHint: true}
)

func (t *tools) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "linkreel", Title: "Linkreel", Version: Version()},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{}})
	s.AddReceivingMiddleware(codedErrors)
	t.readLinks(s)
	t.readVideos(s)
	t.readAccount(s)
	if !t.readOnly {
		t.writeLinks(s)
		t.writeVideos(s)
		t.writeDomains(s)
	}
	return s
}

// addTool registers a tool and derives its schemas from its types.
func addTool[In, Out any](s *mcp.Server, hints *mcp.ToolAnnotations, name, description string,
	do func(context.Context, *mcp.CallToolRequest, In) (Out, error), tune ...func(map[string]*jsonschema.Schema)) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err) // only a broken type fails here, and a test registers every tool
	}
	notNull(schema)
	for _, f := range tune {
		f(schema.Properties)
	}
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: description, Annotations: hints, InputSchema: schema},
		func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
			out, err := do(ctx, req, in)
			if err != nil {
				return nil, out, errors.New(refusal(err))
			}
			return nil, out, nil
		})
}

// notNull changes the schema so that a value may be omitted but not be null.
func notNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	notNull(s.Items)
	for _, p := range s.Properties {
		notNull(p)
	}
}

// within sets the bounds of a number.
func within(name string, low, high float64) func(map[string]*jsonschema.Schema) {
	return func(p map[string]*jsonschema.Schema) { p[name].Minimum, p[name].Maximum = &low, &high }
}

// among lists the allowed values of a string, or of the strings in a list.
func among(name string, values ...any) func(map[string]*jsonschema.Schema) {
	return func(p map[string]*jsonschema.Schema) {
		if p[name].Items != nil {
			p[name].Items.Enum = values
			return
		}
		p[name].Enum = values
	}
}

// inPart is the error from a tool that changes several records. before says which of them may have
// been changed.
type inPart struct {
	before string
	err    error
}

func (e *inPart) Error() string { return e.before + " " + e.err.Error() }

func (e *inPart) Unwrap() error { return e.err }

// refusal formats an error for an assistant: first the code, then what to change.
func refusal(err error) string {
	var (
		api   *client.APIError
		video *client.VideoError
		words *usageError
		part  *inPart
	)
	switch {
	case errors.As(err, &part):
		code, message, _ := strings.Cut(refusal(part.err), ": ")
		return code + ": " + part.before + " " + message
	case errors.As(err, &words):
		return "INVALID_ARGUMENT: " + words.text
	case errors.As(err, &video):
		return video.Code + ": " + video.Message
	case errors.As(err, &api):
		text := strings.Replace(explain(err), " ("+api.Code+")", "", 1)
		return api.Code + ": " + strings.ReplaceAll(text, ".; ", ". ")
	default:
		return "FAILED: " + clean(err.Error())
	}
}

// iso formats a time for people and models.
func iso(m *client.Time) string {
	if m == nil {
		return ""
	}
	return m.Time().Format(time.RFC3339)
}
