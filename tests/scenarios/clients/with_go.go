// Print pages: `with_go URL…`.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	for _, url := range os.Args[1:] {
		response, err := http.Get(url)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := io.Copy(os.Stdout, response.Body); err != nil {
			log.Fatal(err)
		}
	}
}
