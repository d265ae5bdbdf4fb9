package standalone

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth"
)

// demo makes sure that each plan has a working key. The keys are stored with the data. Revoked keys
// are replaced.
func (s *Stack) demo(ctx context.Context) error {
	if s.Keys = s.secrets.Keys; s.readOnly.on.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	db, err := firestoredb.Open(ctx, firestoredb.Config{Project: project, Endpoint: s.firestore, Token: s.cloudToken})
	if err != nil {
		return fmt.Errorf("demo accounts: %w", err)
	}
	defer func() { _ = db.Close() }()
	for _, plan := range identity.Plans() {
		key, err := auth.EnsureDemo(ctx, db, plan, s.secrets.Keys[plan.String()])
		if err != nil {
			return fmt.Errorf("demo accounts: %w", err)
		}
		s.secrets.Keys[plan.String()] = key
	}
	return s.dir.saveSecrets(s.secrets)
}

// SignInLink creates a one-time link to the console for the owner of the demo account on the
// business plan. The first call creates this member, and later calls use the same one.
func (s *Stack) SignInLink(ctx context.Context) (string, error) {
	var acct struct{ ID string }
	if err := call(ctx, http.MethodGet, s.BaseURL+"/api/v1/account", s.Keys["business"], nil, &acct); err != nil {
		return "", fmt.Errorf("sign-in link: %w", err)
	}
	if s.secrets == nil { // the stack runs in another process; s was read from its stack.json
		s.secrets = &secrets{}
	}
	var link struct{ URL, MemberID string }
	address := s.AdminURL + "/admin/v1/accounts/" + acct.ID + "/sign-in-links"
	err := call(ctx, http.MethodPost, address, s.AdminToken, map[string]string{"memberId": s.secrets.Owner}, &link)
	if s.secrets.Owner == "" || err != nil { // the member does not exist yet or was removed
		err = call(ctx, http.MethodPost, address, s.AdminToken, map[string]string{"name": "Owner", "role": "owner"}, &link)
	}
	if err != nil {
		return "", fmt.Errorf("sign-in link: %w", err)
	}
	if s.secrets.Owner == link.MemberID {
		return link.URL, nil
	}
	s.secrets.Owner = link.MemberID
	if s.dir == nil {
		return link.URL, nil
	}
	return link.URL, s.dir.saveSecrets(s.secrets)
}

// call sends a request to the stack itself.
func call(ctx context.Context, method, address, token string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, &body)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %d", address, resp.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(out)
}
