package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var testPace = Pace{Stall: 10 * time.Second, Rate: 16 << 10, Send: 2 * time.Minute}

// A pipe is a listener whose connections are in memory, and whose time is that of
// a bubble.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipe) Close() error   { close(p.closed); return nil }
func (p *pipe) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// paced serves one connection in a bubble, to whose client's end test talks.
func paced(t *testing.T, h http.HandlerFunc, test func(s *Server, c net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{pace: testPace}
		web := &http.Server{Handler: s.paced(h)}
		p := &pipe{make(chan net.Conn), make(chan struct{})}
		done := make(chan struct{})
		go func() { defer close(done); web.Serve(p) }()
		client, server := net.Pipe()
		p.conns <- server
		test(s, client)
		client.Close()
		web.Shutdown(context.Background())
		<-done
	})
}

// readAnswer reads an answer.
func readAnswer(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Error(err) // not Fatal: it is used on other goroutines too
		return &http.Response{}, ""
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res, string(b)
}

// countBody answers with the body's length, or 408 and why it could not be read.
func countBody(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.WriteHeader(http.StatusRequestTimeout)
		fmt.Fprint(w, err)
		return
	}
	fmt.Fprint(w, n, err)
}

// A body that comes slowly is waited for, and one that is too slow is not.
func TestPaceOfBodies(t *testing.T) {
	type piece struct {
		after time.Duration
		size  int
	}
	repeat := func(n int, p piece) (list []piece) {
		for range n {
			list = append(list, p)
		}
		return list
	}
	for name, c := range map[string]struct {
		pieces []piece
		slow   time.Duration // 0 when it is whole
	}{
		"small pieces":             {repeat(60, piece{500 * time.Millisecond, 1000}), 0},
		"one short standstill":     {[]piece{{0, 100}, {9 * time.Second, 100}}, 0},
		"a standstill":             {[]piece{{0, 100}, {11 * time.Second, 100}}, 10 * time.Second},
		"nothing at all":           {[]piece{{time.Hour, 1}}, 10 * time.Second},
		"one byte a second":        {repeat(100, piece{time.Second, 1}), 10 * time.Second},
		"fast, then a standstill":  {[]piece{{0, 1 << 20}, {15 * time.Second, 1 << 20}, {time.Hour, 1}}, 35 * time.Second},
		"what came fast is no pay": {append([]piece{{0, 8 << 20}}, repeat(60, piece{5 * time.Second, 100})...), 20 * time.Second},
		"below the average":        {repeat(200, piece{time.Second, 8000}), 117 * time.Second},
		"above the average":        {repeat(200, piece{time.Second, 17 << 10}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			paced(t, countBody, func(_ *Server, conn net.Conn) {
				size := 0
				for _, p := range c.pieces {
					size += p.size
				}
				began := time.Now()
				answer := make(chan string)
				go func() {
					res, body := readAnswer(t, bufio.NewReader(conn))
					answer <- fmt.Sprint(res.StatusCode, " ", res.Close, " ", time.Since(began).Round(time.Second), " ", body)
				}()
				fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for _, p := range c.pieces {
						time.Sleep(p.after)
						if _, err := conn.Write(make([]byte, p.size)); err != nil {
							return
						}
					}
				}()
				got := <-answer
				want := "200 false "
				if c.slow > 0 {
					want = fmt.Sprintf("408 true %v ", c.slow)
				}
				if !strings.HasPrefix(got, want) || c.slow == 0 && !strings.HasSuffix(got, fmt.Sprintf(" %d <nil>", size)) {
					t.Errorf("%s, want %s", got, want)
				}
				conn.Close()
				<-sent
			})
		})
	}
}

// The time that a handler takes is not its client's, before, while and after the
// body is read.
func TestPaceLeavesHandlersTheirTime(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Minute)
		for range 10 {
			if _, err := io.ReadFull(r.Body, make([]byte, 10)); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		}
		if n, err := r.Body.Read(make([]byte, 10)); n > 0 || err != io.EOF {
			t.Error(n, err)
		}
		time.Sleep(time.Minute)
		if err := r.Context().Err(); err != nil {
			t.Error("the request's context has ended:", err)
		}
		fmt.Fprint(w, "begun")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if err := r.Context().Err(); err != nil {
			t.Error("the request's context has ended:", err)
		}
		fmt.Fprint(w, ", ended")
	}
	paced(t, handler, func(_ *Server, conn net.Conn) {
		r := bufio.NewReader(conn)
		for range 2 { // on one connection
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n%s", make([]byte, 100))
			if res, body := readAnswer(t, r); res.StatusCode != 200 || res.Close || body != "begun, ended" {
				t.Error(res.StatusCode, res.Close, body)
			}
			time.Sleep(time.Minute)
		}
	})
}

// The rest of a body that no handler wants is not waited for any longer.
func TestPaceOfUnreadBodies(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"ignored": func(http.ResponseWriter, *http.Request) {},
		"closed":  func(_ http.ResponseWriter, r *http.Request) { r.Body.Close() },
		"flushed": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
		"large":   func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			paced(t, h, func(_ *Server, conn net.Conn) {
				began := time.Now()
				fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
				readAnswer(t, bufio.NewReader(conn))
				if d := time.Since(began); d > testPace.Stall {
					t.Errorf("the answer took %v", d)
				}
				conn.SetReadDeadline(time.Now().Add(time.Hour))
				if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("the connection goes on: %v", err)
				}
				if d := time.Since(began); d > 2*testPace.Stall {
					t.Errorf("the connection lasted %v", d)
				}
			})
		})
	}
}

// An answer that nobody takes ends, one that is taken slowly does not.
func TestPaceOfAnswers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, send := range map[string]func(http.ResponseWriter) error{
		"written": func(w http.ResponseWriter) error {
			_, err := w.Write(make([]byte, 2<<20))
			return err
		},
		"copied": func(w http.ResponseWriter) error {
			_, err := io.Copy(w, bytes.NewReader(make([]byte, 2<<20)))
			return err
		},
		"file": func(w http.ResponseWriter) error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.CopyN(w, f, 2<<20)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			h := func(w http.ResponseWriter, _ *http.Request) { ended <- send(w) }
			paced(t, h, func(s *Server, conn net.Conn) {
				ended = make(chan error, 1)
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				// Slowly: 2 MiB take half an hour.
				for range 32 {
					time.Sleep(time.Minute)
					if _, err := io.ReadFull(res.Body, make([]byte, 64<<10)); err != nil {
						t.Fatal(err)
					}
				}
				if n, err := res.Body.Read(make([]byte, 1)); n > 0 || err != io.EOF {
					t.Error(n, err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			paced(t, h, func(s *Server, conn net.Conn) {
				ended = make(chan error, 1)
				began := time.Now()
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if s := s.waits.String(); s != " (1 still send their answers)" {
					t.Error(s)
				}
				if err, d := <-ended, time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || d != testPace.Send {
					t.Errorf("%v after %v", err, d)
				}
			})
		})
	}
}

// While a server is about to stop its clients come on other connections.
func TestLeave(t *testing.T) {
	paced(t, countBody, func(s *Server, conn net.Conn) {
		r := bufio.NewReader(conn)
		for _, leaving := range []bool{false, true} {
			if s.Leave(); !leaving {
				s.Stay()
			}
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if res, _ := readAnswer(t, r); res.Close != leaving {
				t.Errorf("leaving %v: close %v", leaving, res.Close)
			}
		}
	})
}

// A connection that a handler took for itself has its own time.
func TestPaceOfHijacked(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer c.Close()
			line, _ := rw.ReadString('\n')
			io.WriteString(c, line)
		}()
	}
	paced(t, h, func(_ *Server, conn net.Conn) {
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		time.Sleep(time.Hour)
		fmt.Fprint(conn, "still here\n")
		if b, err := io.ReadAll(conn); string(b) != "still here\n" {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// All of it holds for the streams of HTTP/2 too.
func TestPaceOfHTTP2(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			countBody(w, r)
			return
		}
		for range 3 {
			fmt.Fprint(w, "piece ")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
		}
	}
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	synctest.Test(t, func(t *testing.T) {
		s := &Server{pace: testPace}
		web := &http.Server{Handler: s.paced(http.HandlerFunc(h)), Protocols: &h2}
		p := &pipe{make(chan net.Conn), make(chan struct{})}
		done := make(chan struct{})
		go func() { defer close(done); web.Serve(p) }()
		transport := &http.Transport{Protocols: &h2, DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			p.conns <- server
			return client, nil
		}}
		client := &http.Client{Transport: transport}
		if res, err := client.Get("http://x/"); err != nil {
			t.Error(err)
		} else if b, err := io.ReadAll(res.Body); res.ProtoMajor != 2 || string(b) != "piece piece piece " || err != nil {
			t.Errorf("%s %q, %v", res.Proto, b, err)
		}
		body, feed := io.Pipe()
		began := time.Now()
		if res, err := client.Post("http://x/", "", body); err != nil {
			t.Error(err)
		} else if d := time.Since(began); res.StatusCode != http.StatusRequestTimeout || d != testPace.Stall {
			t.Errorf("%s after %v", res.Status, d)
		}
		feed.Close()
		transport.CloseIdleConnections()
		web.Close()
		<-done
	})
}
