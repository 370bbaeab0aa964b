//go:build tools

// Package tools pins the Kubernetes programs that run on the server under
// test: the API server and its client, and the controllers and the scheduler
// of the simulated control plane.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
