// @libsql/client against a libSQL server. LIBSQL_URL and LIBSQL_TOKEN name it;
// its database is empty.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createClient, LibsqlBatchError, LibsqlError } from "@libsql/client/http";

const config = { url: process.env.LIBSQL_URL, authToken: process.env.LIBSQL_TOKEN };
const code = (want) => (e) => e instanceof LibsqlError && e.code === want;
let db;

before(async () => {
  db = createClient(config);
  await db.batch(["DROP TABLE IF EXISTS t", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "DROP TABLE IF EXISTS u", "CREATE TABLE u (k TEXT UNIQUE)"], "write");
});
after(() => db.close());

test("rows and results", async () => {
  const r = await db.execute({ sql: "INSERT INTO t (v) VALUES (?), (?)", args: ["a", "b"] });
  assert.equal(r.rowsAffected, 2);
  assert.equal(r.lastInsertRowid, 2n);
  const rows = await db.execute("SELECT id, v AS name FROM t ORDER BY id");
  assert.deepEqual(rows.columns, ["id", "name"]);
  assert.deepEqual(rows.rows.map((x) => [x.id, x.name]), [[1, "a"], [2, "b"]]);
  assert.equal((await db.execute({ sql: "SELECT v FROM t WHERE id = $id", args: { id: 2 } })).rows[0][0], "b");
});

test("values", async () => {
  const big = createClient({ ...config, intMode: "bigint" });
  const max = 9223372036854775807n;
  for (const [value, want] of [[null, null], ["", ""], ["日本\u0001\"\\", "日本\u0001\"\\"], [1.5, 1.5], [max, max], [-max - 1n, -max - 1n], [true, 1n], [0, 0n]]) {
    const got = (await big.execute({ sql: "SELECT ?", args: [value] })).rows[0][0];
    assert.equal(typeof want === "bigint" && typeof got === "number" ? BigInt(got) : got, want);
  }
  for (const bytes of [[], [0], [255, 254], [1, 2, 3]]) {
    const got = (await big.execute({ sql: "SELECT ?", args: [new Uint8Array(bytes)] })).rows[0][0];
    assert.deepEqual([...new Uint8Array(got)], bytes);
  }
  await assert.rejects(db.execute("SELECT 9007199254740993"), RangeError);
  big.close();
});

test("a batch is all or nothing", async () => {
  await assert.rejects(
    db.batch([{ sql: "INSERT INTO u VALUES (?)", args: ["x"] }, "INSERT INTO u VALUES ('x')", "INSERT INTO u VALUES ('y')"], "write"),
    (e) => e instanceof LibsqlBatchError && e.statementIndex === 1 && e.code.startsWith("SQLITE_CONSTRAINT"),
  );
  assert.equal((await db.execute("SELECT count(*) FROM u")).rows[0][0], 0);
  const r = await db.batch(["INSERT INTO u VALUES ('x') RETURNING k", "SELECT count(*) FROM u"], "deferred");
  assert.deepEqual([r[0].rows[0][0], r[1].rows[0][0]], ["x", 1]);
  assert.equal((await db.batch(["SELECT 1", "SELECT 2"], "read"))[1].rows[0][0], 2);
});

test("interactive transactions", async () => {
  const tx = await db.transaction("write");
  await tx.execute("INSERT INTO u VALUES ('in')");
  await assert.rejects(tx.execute("INSERT INTO u VALUES ('in')"));
  assert.equal((await tx.execute("SELECT count(*) FROM u WHERE k = 'in'")).rows[0][0], 1);
  await tx.rollback();
  assert.ok(tx.closed);
  assert.equal((await db.execute("SELECT count(*) FROM u WHERE k = 'in'")).rows[0][0], 0);
  const kept = await db.transaction("write");
  await kept.batch(["INSERT INTO u VALUES ('one')", "INSERT INTO u VALUES ('two')"]);
  await kept.commit();
  assert.equal((await db.execute("SELECT count(*) FROM u WHERE k IN ('one', 'two')")).rows[0][0], 2);
  const read = await db.transaction("read");
  assert.equal((await read.execute("SELECT count(*) FROM u WHERE k = 'one'")).rows[0][0], 1);
  read.close();
});

test("many statements", async () => {
  await db.executeMultiple("CREATE TABLE m (a); INSERT INTO m VALUES (1); INSERT INTO m VALUES (2); -- the end");
  await assert.rejects(db.executeMultiple("INSERT INTO m VALUES (3); SELECT nothing; INSERT INTO m VALUES (4)"));
  assert.equal((await db.execute("SELECT count(*) FROM m")).rows[0][0], 3);
  await db.migrate(["DROP TABLE m", "CREATE TABLE n (a REFERENCES t (id))"]);
});

test("errors", async () => {
  await assert.rejects(db.execute("SELEC"), LibsqlError);
  await assert.rejects(db.execute("SELECT nothing"), LibsqlError);
  await assert.rejects(db.execute("SELECT 1; SELECT 2"), code("SQL_MANY_STATEMENTS"));
  await assert.rejects(db.execute(""), code("SQL_NO_STATEMENT"));
  await assert.rejects(db.execute({ sql: "SELECT ?, ?", args: [1] }), code("ARGS_INVALID"));
  const stranger = createClient({ ...config, authToken: "wrong" });
  await assert.rejects(stranger.execute("SELECT 1"), (e) => e instanceof LibsqlError && e.code === "SERVER_ERROR");
  stranger.close();
});

test("many at a time", async () => {
  const n = 200;
  await Promise.all(Array.from({ length: n }, (_, i) => db.execute({ sql: "INSERT INTO t (id, v) VALUES (?, ?)", args: [1000 + i, i] })));
  assert.equal((await db.execute("SELECT count(*), sum(v) FROM t WHERE id >= 1000")).rows[0][1], (n * (n - 1)) / 2);
});

test("a large result", async () => {
  const r = await db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) SELECT i, printf('%.*c', 1000, 'x') FROM n");
  assert.equal(r.rows.length, 5000);
  await assert.rejects(db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) SELECT i, printf('%.*c', 1000, 'x') FROM n"), code("RESPONSE_TOO_LARGE"));
});
