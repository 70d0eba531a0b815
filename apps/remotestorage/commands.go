package remotestorage

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

func commands() []durable.Command {
	return []durable.Command{
		{
			Name: "create", Args: []string{"NAME"}, Short: "Create an account",
			Long: `Create an account. The password is the first line of a file, or of the standard
input with --password-file -. Without the flag one is made, and written once.`,
			Example: "  dwk app remotestorage create alice\n  pass show alice | dwk app remotestorage create alice --password-file -",
			Setup:   setupCreate,
		},
		{
			Name: "password", Args: []string{"NAME"}, Short: "Set the password of an account",
			Long: `Set the password of an account, as create does. All browsers are signed out;
applications stay let in.`,
			Example: "  dwk app remotestorage password alice",
			Setup:   setupPassword,
		},
		{
			Name: "quota", Args: []string{"NAME", "BYTES"}, Short: "Set what an account may store",
			Long:    "Set what an account may store, in bytes; 0 is no bound. What is stored already stays.",
			Example: "  dwk app remotestorage quota alice 10000000000",
			Setup:   func(*flag.FlagSet) durable.CommandFunc { return runQuota },
		},
		{
			Name: "list", Short: "List the accounts",
			Example: "  dwk app remotestorage list -o json",
			Setup:   func(*flag.FlagSet) durable.CommandFunc { return runList },
		},
		{
			Name: "show", Args: []string{"NAME"}, Short: "Show an account and who is let in",
			Example: "  dwk app remotestorage show alice",
			Setup:   func(*flag.FlagSet) durable.CommandFunc { return runShow },
		},
		{
			Name: "token", Args: []string{"NAME", "SCOPE"}, Short: "Let a program in, without a dialog",
			Long: `Make an access token for a program that has no browser, such as a backup. SCOPE is
as in the dialog: modules, or *, with :r or :rw. It is shown once, and can be
revoked by the owner as any other.`,
			Example: "  dwk app remotestorage token alice '*:r' --for https://backup.example",
			Setup:   setupToken,
		},
		{
			Name: "delete", Args: []string{"NAME"}, Short: "Delete an account and all that it stores",
			Long: `Delete an account. Nobody gets in from now on; what it stored is deleted by a
replica, and the name is free after that.`,
			Example: "  dwk app remotestorage delete alice --yes",
			Setup:   func(*flag.FlagSet) durable.CommandFunc { return runDelete },
		},
		{
			Name: "export", Args: []string{"NAME", "FILE"}, Short: "Write all documents of an account as a tar archive",
			Long: `Write all documents of an account to a new file, or with - to the output, as a tar
archive. Content types are in it as the attribute user.mime_type.`,
			Example: "  dwk app remotestorage export alice alice.tar\n  dwk app remotestorage export alice - | tar tv",
			Setup:   func(*flag.FlagSet) durable.CommandFunc { return runExport },
		},
	}
}

// invalid is wrong usage.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", durable.ErrInvalid, fmt.Sprintf(format, args...))
}

func setupCreate(flags *flag.FlagSet) durable.CommandFunc {
	file := flags.String("password-file", "", "read the password from a `FILE`, - is the standard input")
	quota := flags.Int64("quota", -1, "what it may store, in `BYTES`; 0 is no bound (default as in the settings)")
	return func(ctx context.Context, env durable.Env, c durable.Call) error {
		name := c.Args[0]
		if !validName(name) {
			return invalid("a name has 1 to 64 of a-z, 0-9, '.', '_' and '-', and begins and ends with one of the first two")
		}
		s := env.Settings().(*Settings)
		if *quota < 0 {
			*quota = s.Quota
		}
		password, made, err := newPassword(c, *file)
		if err != nil {
			return err
		}
		a, err := openAccounts(env)
		if err != nil {
			return err
		}
		if err := a.create(ctx, newVaults(env), name, password, *quota); err != nil {
			return fmt.Errorf("create account %s: %w", name, err)
		}
		return showNew(c, env, name, made)
	}
}

func setupPassword(flags *flag.FlagSet) durable.CommandFunc {
	file := flags.String("password-file", "", "read the password from a `FILE`, - is the standard input")
	return func(ctx context.Context, env durable.Env, c durable.Call) error {
		a, acc, err := findAccount(ctx, env, c.Args[0])
		if err != nil {
			return err
		}
		password, made, err := newPassword(c, *file)
		if err != nil {
			return err
		}
		if _, err := a.setPassword(ctx, acc, password); err != nil {
			return fmt.Errorf("set password of %s: %w", acc.name, err)
		}
		return showNew(c, env, acc.name, made)
	}
}

// newPassword reads a password, or makes one.
func newPassword(c durable.Call, file string) (password, made string, err error) {
	in := c.In
	switch file {
	case "":
		made = strings.ToLower(rand.Text())
		return made, made, nil
	case "-":
	default:
		f, err := os.Open(file)
		if err != nil {
			return "", "", invalid("%v", err)
		}
		defer f.Close()
		in = f
	}
	line, err := bufio.NewReader(io.LimitReader(in, maxPassword+2)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", "", err
	}
	password = strings.TrimRight(line, "\r\n")
	if err := checkPassword(password); err != nil {
		return "", "", invalid("%v", err)
	}
	return password, "", nil
}

// showNew shows an account's address, and a password that was made.
func showNew(c durable.Call, env durable.Env, name, made string) error {
	p, err := newPlaces(env, env.Settings().(*Settings))
	if err != nil {
		return err
	}
	address := name + "@" + p.accountHost
	a := durable.Answer{Rows: [][]string{{"address", address}}, JSON: struct {
		Name     string `json:"name"`
		Address  string `json:"address"`
		Password string `json:"password,omitempty"`
	}{name, address, made}}
	if made != "" {
		a.Rows = append(a.Rows, []string{"password", made})
	}
	return c.Show(a)
}

func findAccount(ctx context.Context, env durable.Env, name string) (*accounts, account, error) {
	a, err := openAccounts(env)
	if err != nil {
		return nil, account{}, err
	}
	acc, err := a.get(ctx, name)
	if err != nil {
		err = fmt.Errorf("account %s: %w", name, err)
	}
	return a, acc, err
}

// shown is an account in answers. Sizes are bytes, times epoch milliseconds.
type shown struct {
	Name      string      `json:"name"`
	Vault     string      `json:"vault"`
	Created   int64       `json:"created"`
	Used      int64       `json:"used"`
	Quota     int64       `json:"quota"`
	Documents int64       `json:"documents"`
	Waiting   int64       `json:"waiting"`
	Grants    []grantInfo `json:"grants"`
}

func show(ctx context.Context, vs vaults, acc account) (shown, error) {
	s := shown{Name: acc.name, Vault: acc.id, Created: acc.created}
	id, err := durable.ParseID(acc.id)
	var info infoAnswer
	if err == nil {
		err = vs.call(ctx, id, "info", none{}, &info)
	}
	s.Used, s.Quota, s.Documents, s.Waiting, s.Grants = info.Used, info.Quota, info.Documents, info.Waiting, info.Grants
	return s, err
}

func (s shown) quota() string {
	if s.Quota == 0 {
		return "none"
	}
	return sizeText(s.Quota)
}

func dateText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.DateTime) }

func runQuota(ctx context.Context, env durable.Env, c durable.Call) error {
	quota, err := strconv.ParseInt(c.Args[1], 10, 64)
	if err != nil || quota < 0 {
		return invalid("%q is not a number of bytes", c.Args[1])
	}
	_, acc, err := findAccount(ctx, env, c.Args[0])
	if err != nil {
		return err
	}
	id, err := durable.ParseID(acc.id)
	if err != nil {
		return err
	}
	if err := newVaults(env).call(ctx, id, "quota", openRequest{Quota: quota}, nil); err != nil {
		return fmt.Errorf("account %s: %w", acc.name, err)
	}
	return runShow(ctx, env, c)
}

func runList(ctx context.Context, env durable.Env, c durable.Call) error {
	a, err := openAccounts(env)
	if err != nil {
		return err
	}
	var list []account
	for row, err := range a.db.Query(ctx, `SELECT name, id, created FROM rs_account WHERE deleted IS NULL ORDER BY name`) {
		var acc account
		if err == nil {
			err = row.Scan(&acc.name, &acc.id, &acc.created)
		}
		if err != nil {
			return err
		}
		list = append(list, acc)
	}
	vs, all := newVaults(env), []shown{}
	answer := durable.Answer{Columns: []string{"NAME", "DOCUMENTS", "USED", "QUOTA", "APPLICATIONS", "CREATED"}}
	for _, acc := range list {
		s, err := show(ctx, vs, acc)
		if _, gone := errors.AsType[*refusal](err); gone {
			continue // deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("account %s: %w", acc.name, err)
		}
		all = append(all, s)
		answer.Rows = append(answer.Rows, []string{s.Name, fmt.Sprint(s.Documents), sizeText(s.Used), s.quota(), fmt.Sprint(len(s.Grants)), dateText(s.Created)})
	}
	answer.JSON = all
	return c.Show(answer)
}

func runShow(ctx context.Context, env durable.Env, c durable.Call) error {
	_, acc, err := findAccount(ctx, env, c.Args[0])
	if err != nil {
		return err
	}
	s, err := show(ctx, newVaults(env), acc)
	if err != nil {
		return fmt.Errorf("account %s: %w", acc.name, err)
	}
	answer := durable.Answer{JSON: s, Rows: [][]string{
		{"name", s.Name}, {"vault", s.Vault}, {"created", dateText(s.Created)}, {"documents", fmt.Sprint(s.Documents)},
		{"used", sizeText(s.Used)}, {"quota", s.quota()}, {"bodies to collect", fmt.Sprint(s.Waiting)},
	}}
	for _, g := range s.Grants {
		answer.Rows = append(answer.Rows, []string{"application", g.Origin + " " + g.Scope + ", since " + dateText(g.Created)})
	}
	return c.Show(answer)
}

func setupToken(flags *flag.FlagSet) durable.CommandFunc {
	origin := flags.String("for", "command line", "who it is for, as the owner is shown `IT`")
	return func(ctx context.Context, env durable.Env, c durable.Call) error {
		s, err := parseScope(c.Args[1])
		if err != nil {
			return invalid("%v", err)
		}
		_, acc, err := findAccount(ctx, env, c.Args[0])
		if err != nil {
			return err
		}
		id, err := durable.ParseID(acc.id)
		if err != nil {
			return err
		}
		p, err := newPlaces(env, env.Settings().(*Settings))
		if err != nil {
			return err
		}
		var g grantAnswer
		if err := newVaults(env).call(ctx, id, "grant", grantRequest{Origin: *origin, Scope: s.String()}, &g); err != nil {
			return fmt.Errorf("account %s: %w", acc.name, err)
		}
		store := p.storageRoot(acc.name)
		return c.Show(durable.Answer{Rows: [][]string{{"store", store}, {"token", g.Token}, {"scope", g.Scope}}, JSON: struct {
			Store string `json:"store"`
			Token string `json:"token"`
			Scope string `json:"scope"`
		}{store, g.Token, g.Scope}})
	}
}

func runDelete(ctx context.Context, env durable.Env, c durable.Call) error {
	a, acc, err := findAccount(ctx, env, c.Args[0])
	if err != nil {
		return err
	}
	vs := newVaults(env)
	s, err := show(ctx, vs, acc)
	if err != nil {
		return fmt.Errorf("account %s: %w", acc.name, err)
	}
	if err := c.Confirm(ctx, fmt.Sprintf("Delete account %s with %d documents, %s?", acc.name, s.Documents, sizeText(s.Used))); err != nil {
		return err
	}
	if err := a.remove(ctx, vs, acc); err != nil {
		return fmt.Errorf("delete account %s: %w", acc.name, err)
	}
	c.Note("a replica deletes what it stored; then the name is free")
	return c.Show(durable.Answer{JSON: s, Rows: [][]string{{"deleted", acc.name}}})
}

func runExport(ctx context.Context, env durable.Env, c durable.Call) error {
	_, acc, err := findAccount(ctx, env, c.Args[0])
	if err != nil {
		return err
	}
	id, err := durable.ParseID(acc.id)
	if err != nil {
		return err
	}
	if c.Args[1] == "-" {
		_, err := exportTar(ctx, env, id, c.Out)
		return err
	}
	f, err := os.OpenFile(c.Args[1], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	documents, err := exportTar(ctx, env, id, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("export account %s: %w", acc.name, err), os.Remove(c.Args[1]))
	}
	return c.Show(durable.Answer{Rows: [][]string{{"documents", fmt.Sprint(documents)}, {"file", c.Args[1]}}, JSON: struct {
		Documents int    `json:"documents"`
		File      string `json:"file"`
	}{documents, c.Args[1]}})
}
