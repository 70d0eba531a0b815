package proto

// An Error is the error of one statement or request. Its codes are those of
// sqld; the specification calls them not stable.
type Error struct {
	Message string `json:"message"`
	Code    string `json:"code"`
}

func (e *Error) Error() string { return e.Message }
