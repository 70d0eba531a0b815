// hrana-client-ts against a libSQL server. Of version 3 of the protocol this
// client knows only the encoding in protobuf: on a server without it, it falls
// back to version 2. LIBSQL_URL and LIBSQL_TOKEN name the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as hrana from "@libsql/hrana-client";

const { LIBSQL_URL: url, LIBSQL_TOKEN: token } = process.env;

for (const version of [2, 3]) {
  const on = (name, run) =>
    test(`asked for version ${version}: ${name}`, async () => {
      const client = hrana.openHttp(url, token, undefined, version);
      try {
        assert.equal(await client.getVersion(), 2);
        const stream = client.openStream();
        await run(stream, client);
        stream.close();
      } finally {
        client.close();
      }
    });

  on("queries", async (s) => {
    const q = await s.query(["SELECT ? AS a, 'x' AS b UNION ALL SELECT 2, NULL", [1]]);
    assert.deepEqual(q.columnNames, ["a", "b"]);
    assert.deepEqual(q.rows.map((r) => [r.a, r.b]), [[1, "x"], [2, null]]);
    assert.equal(await s.queryValue("SELECT 7").then((r) => r.value), 7);
    assert.equal((await s.queryRow("SELECT 1 WHERE 0")).row, undefined);
    s.intMode = "bigint";
    assert.equal((await s.queryValue("SELECT 9223372036854775807")).value, 9223372036854775807n);
  });

  on("a transaction in one stream", async (s) => {
    await s.run(`CREATE TABLE IF NOT EXISTS h${version} (a)`);
    await s.run("BEGIN");
    const r = await s.run([`INSERT INTO h${version} VALUES (?), (?)`, [1, 2]]);
    assert.equal(r.affectedRowCount, 2);
    await s.run("ROLLBACK");
    assert.equal((await s.queryValue(`SELECT count(*) FROM h${version}`)).value, 0);
  });

  on("batches with conditions", async (s) => {
    const batch = s.batch(false);
    const one = batch.step();
    const first = one.queryValue("SELECT 1");
    const two = batch.step().condition(hrana.BatchCond.ok(one));
    const bad = two.run("SELECT nothing");
    const three = batch.step().condition(hrana.BatchCond.not(hrana.BatchCond.ok(two)));
    const last = three.queryValue("SELECT 3");
    const never = batch.step().condition(hrana.BatchCond.and(batch, [hrana.BatchCond.ok(two), hrana.BatchCond.ok(three)])).queryValue("SELECT 4");
    const failed = assert.rejects(bad, hrana.ResponseError);
    await batch.execute();
    await failed;
    assert.equal((await first).value, 1);
    assert.equal((await last).value, 3);
    assert.equal(await never, undefined);
  });

  on("stored texts", async (s) => {
    const sql = s.storeSql("SELECT ?");
    for (const i of [1, 2]) assert.equal((await s.queryValue(new hrana.Stmt(sql).bindIndexes([i]))).value, i);
    sql.close();
  });

  on("describe and sequence", async (s) => {
    const d = await s.describe("SELECT :a AS x");
    assert.deepEqual([d.paramNames, d.columns.map((c) => c.name), d.isReadonly, d.isExplain], [[":a"], ["x"], true, false]);
    await s.sequence("CREATE TABLE IF NOT EXISTS seq (a); DELETE FROM seq; INSERT INTO seq VALUES (1); INSERT INTO seq VALUES (2)");
    assert.equal((await s.queryValue("SELECT count(*) FROM seq")).value, 2);
  });

  on("errors leave the stream alive", async (s) => {
    await assert.rejects(s.run("SELEC"), hrana.ResponseError);
    assert.equal((await s.queryValue("SELECT 1")).value, 1);
  });

  on("streams that end", async (s, client) => {
    const other = client.openStream();
    await other.run("BEGIN");
    other.closeGracefully();
    assert.equal((await s.queryValue("SELECT 1")).value, 1);
    const third = client.openStream();
    third.close();
    await assert.rejects(third.run("SELECT 1"), hrana.ClosedError);
  });
}
