package doctest

// FollowedPages returns the names of the pages in docs/ whose statements and commands TestOperations in test/runbook
// runs on real servers.
func FollowedPages() []string {
	return []string{
		"runbook.md", "access.md", "alerts.md", "bad-rows.md", "operations.md", "inspect.md", "high-availability.md", "park.md", "prune.md",
		"recover.md", "resend.md",
	}
}
