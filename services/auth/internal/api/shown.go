package api

import (
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// Shown is a record as the API shows it, for events. It holds no secret.
func Shown(record any) any {
	switch r := record.(type) {
	case account.Account:
		return toOperatorAccount(r, nil)
	case account.Key:
		return toKey(r)
	case member.Member:
		return toMember(r, nil)
	case member.Link:
		if r.Kind == member.SignIn {
			return linkEventBody{ID: r.ID, MemberID: r.MemberID, Name: r.Name, Role: r.Role, MadeBy: actorBody{string(r.By.Type), r.By.ID, r.By.Name}, CreatedAt: r.CreatedAt.UnixMilli(), ExpiresAt: r.ExpiresAt.UnixMilli()}
		}
		return toInvitation(r)
	case member.Session:
		return sessionBody{ID: r.ID, MemberID: r.MemberID, How: r.How, Client: r.Client, CreatedAt: r.CreatedAt.UnixMilli(), EndedAt: millis(r.EndedAt)}
	}
	return nil // a record without a form here writes no event: the store refuses it
}

type (
	memberBody struct {
		ID            string        `json:"id"`
		Name          string        `json:"name"`
		Email         *string       `json:"email"` // null: not known
		Role          identity.Role `json:"role"`
		CreatedAt     int64         `json:"createdAt"`
		UpdatedAt     int64         `json:"updatedAt"`
		IgnoredFields []string      `json:"ignoredFields,omitempty"`
	}
	listedMemberBody struct {
		memberBody
		SignIn []member.Way `json:"signIn"` // empty: only by a link that somebody makes
	}
	memberListBody struct {
		Data []listedMemberBody `json:"data"`
	}
	invitationBody struct {
		ID        string        `json:"id"`
		Name      string        `json:"name"`
		Role      identity.Role `json:"role"`
		InvitedBy actorBody     `json:"invitedBy"`
		CreatedAt int64         `json:"createdAt"`
		ExpiresAt int64         `json:"expiresAt"`
	}
	newInvitationBody struct {
		URL string `json:"url"` // shown here and never again
		invitationBody
		IgnoredFields []string `json:"ignoredFields,omitempty"`
	}
	invitationListBody struct {
		Data []invitationBody `json:"data"`
	}
	actorBody struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	sessionBody struct {
		ID        string `json:"id"`
		MemberID  string `json:"memberId"`
		How       string `json:"how"`
		Client    string `json:"client"`
		CreatedAt int64  `json:"createdAt"`
		EndedAt   *int64 `json:"endedAt"`
	}
	// linkEventBody is a sign-in link as its events show it.
	linkEventBody struct {
		ID        string        `json:"id"`
		MemberID  string        `json:"memberId"`
		Name      string        `json:"name"`
		Role      identity.Role `json:"role"`
		MadeBy    actorBody     `json:"madeBy"`
		CreatedAt int64         `json:"createdAt"`
		ExpiresAt int64         `json:"expiresAt"`
	}
	memberLinkBody struct {
		URL       string `json:"url"` // shown here and never again
		ExpiresAt int64  `json:"expiresAt"`
	}
	signInLinkBody struct {
		URL       string `json:"url"`
		ExpiresAt int64  `json:"expiresAt"`
		MemberID  string `json:"memberId"`
	}
	deviceBody struct {
		DeviceCode      string `json:"deviceCode"`
		UserCode        string `json:"userCode"`
		VerificationURL string `json:"verificationUrl"`
		ExpiresAt       int64  `json:"expiresAt"`
		Interval        int    `json:"interval"` // seconds between two questions
	}
)

func toMember(m member.Member, ignored []string) memberBody {
	b := memberBody{
		ID: m.ID, Name: m.Name, Role: m.Role, CreatedAt: m.CreatedAt.UnixMilli(), UpdatedAt: m.UpdatedAt.UnixMilli(), IgnoredFields: ignored,
	}
	if m.Email != "" {
		b.Email = &m.Email
	}
	return b
}

func toInvitation(l member.Link) invitationBody {
	return invitationBody{
		ID: l.ID, Name: l.Name, Role: l.Role, InvitedBy: actorBody{string(l.By.Type), l.By.ID, l.By.Name},
		CreatedAt: l.CreatedAt.UnixMilli(), ExpiresAt: l.ExpiresAt.UnixMilli(),
	}
}
