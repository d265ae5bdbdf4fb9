package identity

import (
	"errors"
	"slices"
)

// Role determines what a member may do in an account. Roles are ordered: a higher role includes all
// the rights of the lower roles.
type Role string

// Roles, lowest first.
const (
	Viewer Role = "viewer"
	Member Role = "member"
	Admin  Role = "admin"
	Owner  Role = "owner"
)

// Roles returns the roles, lowest first.
func Roles() []Role { return []Role{Viewer, Member, Admin, Owner} }

// ParseRole parses the name of a role.
func ParseRole(s string) (Role, error) {
	if slices.Contains(Roles(), Role(s)) {
		return Role(s), nil
	}
	return "", errors.New("unknown role; use one of viewer, member, admin, owner")
}

// AtLeast reports whether r has all of other's rights. An unknown role has no rights, so it is
// below every known role.
func (r Role) AtLeast(other Role) bool {
	mine := slices.Index(Roles(), r)
	return mine >= 0 && mine >= slices.Index(Roles(), other)
}

// Scopes returns the role's scopes. An unknown role has no scopes.
//
// Only Owner has AccountWrite. Operations on owners, and the export, check the role; see
// [Principal.Owns].
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
