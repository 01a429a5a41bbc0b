// Command registry is the distribution registry with the filesystem driver alone.
package main

import (
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"

	"github.com/distribution/distribution/v3/registry"
)

func main() {
	_ = registry.RootCmd.Execute()
}
