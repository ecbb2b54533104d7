package coordinator

import (
	"embed"
	"net/http"
)

// The web page is three files and no library. It asks /nodes and /maintenance/status and follows /events, as any program may.

//go:embed page
var pageFiles embed.FS

// pageRules make a browser let the page do nothing but ask this coordinator. They are a second line of defence: the page shows what nodes
// say as text in any case.
const pageRules = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageFile serves one of the page's files.
func (s *web) pageFile(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pageRules)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // after an upgrade the new page must come with the new answers
		http.ServeFileFS(w, r, pageFiles, "page/"+name)
	}
}
