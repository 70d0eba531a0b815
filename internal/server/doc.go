// Package server is the HTTP side of a replica: the public listener with its
// mounts and static files, the admin listener with health, readiness and
// profiles, and the life of one listening address.
//
// # URLs and hosts
//
// The request URL that a mounted handler sees is absolute: scheme and host come
// from the configured base URL, the path is the one below the mount, in the
// exact escaped form that the client sent. [http.Request.Host] stays as it was
// received. Links are built from the URL; Host serves only to refuse foreign
// names, which the server leaves to the application: a load balancer's checks
// and a fleet's own tools may address a replica by any name.
//
// A path that begins with the path of the base URL has it removed; any other is
// taken as it is, so that proxies that strip the prefix, health checks and
// well-known paths work too.
//
// # Paths
//
// Paths are compared segment by segment after each segment is unescaped, so an
// encoded slash never ends a segment. A path with a NUL byte or with a "." or
// ".." segment, in any encoding, is a bad request. Nothing else is cleaned:
// empty segments, encoded slashes and backslashes reach mounted handlers as
// they are, and no static file has them.
package server
