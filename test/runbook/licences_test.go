package runbook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// The licences of all linked modules allow distribution with the binaries.
func TestLicences(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", rig.Module+"/cmd/...").Output()
	rig.Must(t, err)
	modules := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if path, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			modules[path] = dir
		}
	}
	if len(modules) < 10 {
		t.Fatalf("only %d modules are linked:\n%s", len(modules), out)
	}
	count := make(map[string]int)
	for path, dir := range modules {
		name := licence(t, dir)
		if name == "" {
			t.Errorf("%s: no licence, or an unknown one", path)
		}
		count[name]++
	}
	t.Log(count)
}

// licence returns the name of the licence in a module's directory, or "" if the licence is not compatible.
func licence(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "[Ll][Ii][Cc][Ee][NnSs]*"))
	rig.Must(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		rig.Must(t, err)
		text := strings.Join(strings.Fields(string(content)), " ")
		for _, l := range []struct{ name, says string }{
			{"Apache-2.0", "Apache License Version 2.0, January 2004"},
			{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
			{"BSD", "Redistribution and use in source and binary forms, with or without modification, are permitted"},
			{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
			{"MPL-2.0", "Mozilla Public License, version 2.0"},
			{"public domain", "put into the public domain"},
		} {
			if strings.Contains(text, l.says) {
				return l.name
			}
		}
	}
	return ""
}
