package storagetest

// Promises are the names and texts of the contract's bullets, as the suite has
// them.
func Promises() (names, texts []string) {
	for _, p := range promises {
		names, texts = append(names, p.name), append(texts, p.text)
	}
	return names, texts
}
