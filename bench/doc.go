// Bench measures the relay side by side with Postgres' own pg_recvlogical, which
// is as fast as a slot can be read, and, if asked, with Debezium: on real
// servers that it starts itself, or on given ones.
//
//	go run ./bench                                    # a minute: is anything wrong?
//	go run ./bench --suite drain --with debezium      # the drain matrix
//	go run ./bench --suite full --with debezium --json all.json --markdown all.md
//	go run ./bench --gate bench/gate.yaml             # exit status 1 if a ratio is out of bounds
//
// README.md says what is measured and how contenders are kept equal.
package main
