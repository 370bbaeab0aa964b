//go:build tools

// Package tools pins the S3 server that backups are tested against.
package tools

import _ "github.com/versity/versitygw/cmd/versitygw"
