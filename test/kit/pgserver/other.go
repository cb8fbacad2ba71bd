//go:build !unix

package pgserver

import (
	"context"
	"errors"
	"syscall"
)

// Package serverproc starts no servers on this operating system.

type credential struct{}

func serverUser() (*credential, error)               { return nil, errors.ErrUnsupported }
func giveTo(*credential, string) error               { return errors.ErrUnsupported }
func serverUserCanRead(string) error                 { return errors.ErrUnsupported }
func procAttr(*credential) *syscall.SysProcAttr      { return nil }
func scratchParent() string                          { return "" }
func kill(int) error                                 { return errors.ErrUnsupported }
func childrenOf(context.Context, int) ([]int, error) { return nil, errors.ErrUnsupported }
func alive(int) bool                                 { return false }
func removeSharedMemory(string)                      {}
