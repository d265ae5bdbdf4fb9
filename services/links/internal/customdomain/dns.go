package customdomain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// DNS looks up proofs. It sends TXT queries to the configured resolvers. It never contacts any
// other server, no matter what the responses contain.
type DNS struct {
	servers []string
	client  dns.Client
}

// NewDNS returns a DNS that uses the resolver at host:port. If resolver is empty, it uses the
// system's resolvers.
func NewDNS(resolver string) (*DNS, error) {
	d := &DNS{client: dns.Client{Timeout: 2 * time.Second}}
	if resolver != "" {
		if _, _, err := net.SplitHostPort(resolver); err != nil {
			return nil, fmt.Errorf("DNS resolver: %w", err)
		}
		d.servers = []string{resolver}
		return d, nil
	}
	conf, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil || len(conf.Servers) == 0 {
		d.servers = []string{"127.0.0.1:53"}
		return d, nil
	}
	for _, s := range conf.Servers {
		d.servers = append(d.servers, net.JoinHostPort(s, conf.Port))
	}
	return d, nil
}

// Texts looks up the TXT records of a name. The list is empty if the name has none. An error means
// that no server answered the query.
func (d *DNS) Texts(ctx context.Context, name string) ([]string, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), dns.TypeTXT)
	// 1232 bytes is the largest datagram that almost every path carries without
	// fragmentation.
	q.SetEdns0(1232, false)
	var errs []error
	// Try twice because lost datagrams are the most common failure.
	for range 2 {
		for _, server := range d.servers {
			r, err := d.ask(ctx, q, server)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			switch r.Rcode {
			case dns.RcodeSuccess:
				return textsOf(r), nil
			case dns.RcodeNameError:
				return nil, nil
			}
			errs = append(errs, fmt.Errorf("%s answers %s", server, dns.RcodeToString[r.Rcode]))
		}
	}
	return nil, errors.Join(errs...)
}

func (d *DNS) ask(ctx context.Context, q *dns.Msg, server string) (*dns.Msg, error) {
	r, _, err := d.client.ExchangeContext(ctx, q, server)
	if err != nil || !r.Truncated {
		return r, err
	}
	// A truncated response may lack the record that proves the claim.
	tcp := d.client
	tcp.Net = "tcp"
	r, _, err = tcp.ExchangeContext(ctx, q, server)
	return r, err
}

// textsOf returns every TXT record in the response, regardless of its name: if the queried name is
// a CNAME, the records have the name of its target.
func textsOf(r *dns.Msg) []string {
	var out []string
	for _, rr := range r.Answer {
		if txt, ok := rr.(*dns.TXT); ok {
			out = append(out, strings.Join(txt.Txt, ""))
		}
	}
	return out
}
