package identity

import (
	"errors"
	"slices"
)

// Role says what a member may do in an account. Roles are ordered: a higher one
// may do all that a lower one may.
type Role string

// The roles, lowest first.
const (
	Viewer Role = "viewer"
	Member Role = "member"
	Admin  Role = "admin"
	Owner  Role = "owner"
)

// Roles lists the roles, lowest first.
func Roles() []Role { return []Role{Viewer, Member, Admin, Owner} }

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if slices.Contains(Roles(), Role(s)) {
		return Role(s), nil
	}
	return "", errors.New("unknown role; use one of viewer, member, admin, owner")
}

// AtLeast reports whether r may do all that other may. An unknown role may do nothing,
// so it is below every known one.
func (r Role) AtLeast(other Role) bool {
	mine := slices.Index(Roles(), r)
	return mine >= 0 && mine >= slices.Index(Roles(), other)
}

// Scopes returns the permissions that the role gives. An unknown role gives no
// permissions.
//
// Only Owner has AccountWrite. Operations on owners, and the export, check the role
// itself; see [Principal.Owns].
func (r Role) Scopes() ScopeSet {
	switch r {
	case Viewer:
		return LinksRead | VideosRead | DomainsRead
	case Member:
		return LinksRead | LinksWrite | VideosRead | VideosWrite | DomainsRead
	case Admin:
		return AllScopes &^ AccountWrite
	case Owner:
		return AllScopes
	}
	return 0
}
