"""What a program does with memcached, done with pymemcache against the port given."""

import sys
import threading
import time

from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

PORT = int(sys.argv[1])
checks = 0


def check(found, expected, what):
    global checks
    checks += 1
    if found != expected:
        sys.exit(f"{what}: got {found!r:.200}, expected {expected!r:.200}")


def fails(error, what, call, *arguments):
    global checks
    checks += 1
    try:
        call(*arguments)
    except error:
        return
    sys.exit(f"{what}: no {error.__name__}")


def client():
    return Client(("127.0.0.1", PORT), timeout=30, default_noreply=False)


c = client()
c.flush_all()

check(c.set("k", b"v"), True, "set")
check(c.get("k"), b"v", "get")
check(c.get("none"), None, "get of nothing")
check(c.add("k", b"w"), False, "add over an item")
check(c.add("new", b"n"), True, "add")
check(c.replace("k", b"w"), True, "replace")
check(c.replace("none", b"w"), False, "replace of nothing")
check(c.append("k", b"!"), True, "append")
check(c.prepend("k", b"?"), True, "prepend")
check(c.get("k"), b"?w!", "the parts")
check(c.delete("k"), True, "delete")
check(c.delete("k"), False, "delete of nothing")

check(c.set("flagged", b"x", flags=123456), True, "set with flags")
check(c.raw_command("get flagged", end_tokens="END\r\n"), b"VALUE flagged 123456 1\r\nx\r\n", "flags")

check(c.set("n", b"41"), True, "set of a number")
check(c.incr("n", 1), 42, "incr")
check(c.decr("n", 50), 0, "decr")
check(c.incr("none", 1), None, "incr of nothing")
c.set("word", b"word")
fails(MemcacheClientError, "incr of a word", c.incr, "word", 1)

value, unique = c.gets("n")
check(c.cas("n", b"7", unique), True, "cas")
check(c.cas("n", b"8", unique), False, "cas with an old number")
check(c.cas("none", b"8", unique), None, "cas of nothing")

many = {f"many{i}": str(i).encode() * 10 for i in range(500)}
check(c.set_many(many), [], "set_many")
check(c.get_many(list(many)), many, "get_many")
check(len(c.gets_many(list(many))), 500, "gets_many")
check(c.delete_many(list(many)), True, "delete_many")
check(c.get_many(list(many)), {}, "get_many of nothing")

# An item, with its key and header, has 1 MiB at most, as in memcached.
large = bytes(range(256)) * 4092
check(c.set("large", large), True, "set of nearly 1 MiB")
check(c.get("large"), large, "get of nearly 1 MiB")
fails(MemcacheServerError, "set of 1 MiB", c.set, "large", bytes(1 << 20))
check(c.get("large"), None, "the old value after that")

check(c.set("brief", b"x", expire=1), True, "set with expiry")
check(c.set("longer", b"x", expire=1), True, "set with expiry")
check(c.touch("longer", 100), True, "touch")
check(c.touch("none", 100), False, "touch of nothing")
check(c.raw_command("gat 100 longer", end_tokens="END\r\n"), b"VALUE longer 0 1\r\nx\r\n", "gat")
time.sleep(2.1)
check(c.get("brief"), None, "get after expiry")
check(c.get("longer"), b"x", "get after touch")

check(c.version().startswith(b"1.6"), True, "version")
check(c.raw_command("verbosity 1"), b"OK", "verbosity")
stats = c.stats()
check(stats[b"curr_items"] > 0 and stats[b"cmd_set"] > 500, True, "stats")
check(stats[b"threads"], 2, "threads")

c.set("quiet", b"1", noreply=True)
c.incr("quiet", 1, noreply=True)
check(c.get("quiet"), b"2", "noreply")

check(c.flush_all(), True, "flush_all")
check(c.get("longer"), None, "get after flush_all")

c.set("counter", b"0")
pool = PooledClient(("127.0.0.1", PORT), timeout=30, max_pool_size=8)


def count():
    for _ in range(200):
        pool.incr("counter", 1)


threads = [threading.Thread(target=count) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check(c.get("counter"), b"1600", "increments from eight threads")

c.quit()
print(f"all checks passed ({checks})")
