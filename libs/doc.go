// Package libs is the root of the module that every Linkreel service shares;
// it holds no code of its own.
package libs
