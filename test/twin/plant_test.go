package twin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/plant"
)

// plantSeeds is the maximum number of seeds until each bug is found.
const plantSeeds = 5000

// A mistake is a bug for the source code of the relay. The protocol prevents the bug, or an earlier
// version of the relay had it.
type mistake struct {
	name  string
	edits []plant.Edit
	want  string // regular expression that the output must match
}

const (
	openFile      = "internal/relay/owner/open.go"
	takeoverFile  = "internal/relay/owner/takeover.go"
	ownershipFile = "internal/relay/owner/ownership.go"
	relayFile     = "internal/relay/relay.go"
	sessionFile   = "internal/relay/owner/session.go"
	fenceFile     = "internal/relay/owner/fence.go"
	rowsFile      = "internal/relay/pump/rows.go"
	trackerFile   = "checkpoint/reread.go"
	startFile     = "internal/relay/position/start.go"
	timelineFile  = "checkpoint/timeline.go"
	contactFile   = "replication/contact.go"
	ownerFile     = "sink/kafka/owner.go"
	resumeFile    = "sink/kafka/resume.go"
	tailFile      = "sink/kafka/tail.go"
	recordFile    = "internal/relay/position/recorder.go"
	writerFile    = "internal/relay/position/writer.go"
	releaseFile   = "internal/parking/release/run.go"
	parkedFile    = "internal/relay/position/parked.go"
	parkingFile   = "internal/parking/set.go"
	missingFile   = "internal/catalog/refill.go"
	copyFile      = "internal/relay/pump/copy.go"
	laneFile      = "sink/lane/lane.go"
	flightFile    = "sink/lane/flight.go"
	outcomeFile   = "sink/lane/outcome.go"
	rejectFile    = "sink/lane/reject.go"
	absentFile    = "sink/lane/missing.go"
	runFile       = "sink/lane/run.go"
)

var plants = []mistake{
	{"an ownership begins without a record", []plant.Edit{
		plant.In(startFile, "	if err := t.recorder.writeRecord(ctx, &p); err != nil {", "	if err := error(nil); err != nil {"),
	}, "without a claim|has not looked"},
	{"a relay looks before it owns only", []plant.Edit{
		plant.In(takeoverFile, "	if server, slot, err = o.checkSlot(ctx, s, stream); err != nil {\n		return err\n	}\n	o.followServer", "	o.followServer"),
	}, "has not looked"},
	{"a relay that reconnects does not prove that it owns", []plant.Edit{
		plant.In(takeoverFile, "	err := o.useStore(ctx, s, stream, o.positions.Recorder.ProveOwner)\n", "	err := error(nil)\n"),
	}, "streams in ownership"},
	{"each owner takes another transactional id", []plant.Edit{
		plant.In(ownerFile, "coordinator{client: s.client, id: TransactionalID(s.topic, s.name)}", "coordinator{client: s.client, id: TransactionalID(s.topic, s.name) + time.Now().String()}"),
	}, "behind ownership|stored again|record of ownership"},
	{"a contested row is sent at once", []plant.Edit{
		plant.In(resumeFile, "return p.contested > 0 && !part.resumed }", "return false }"),
	}, "stored again"},
	{"a session begins where the ownership before it was", []plant.Edit{
		plant.In(openFile, "import (\n", "import (\n\t\"github.com/jackc/pglogrepl\"\n"),
		plant.In(openFile, "stream.Start(opening, 0)", "stream.Start(opening, func() (from pglogrepl.LSN) {\n\t\tif t := o.tracker.Load(); t != nil {\n\t\t\tfrom = t.Confirmed()\n\t\t}\n\t\treturn from\n\t}())"),
	}, "in a session that began at"},
	{"no marker is written", []plant.Edit{
		plant.In(resumeFile, "	if err := r.fence(ctx); err != nil {", "	if err := r.fence(ctx); err != nil && false {"),
		plant.In(resumeFile, "	for len(r.ends) > 0 {\n", "	for false {\n"),
		plant.In(tailFile, "		if behind == from && !time.Now().Before(deadline) {\n			return errMarkerMissing\n", "		if behind == from {\n			return nil\n"),
	}, "stored again"},
	{"the tail is read before the marker is written", []plant.Edit{
		plant.In(tailFile, "		if behind == from && !time.Now().Before(deadline) {\n			return errMarkerMissing\n", "		if behind == from {\n			return nil\n"),
	}, "stored again"},
	{"only what was stored during the transaction is read", []plant.Edit{
		plant.In(resumeFile, "			err = t.readBack(r.begins[at], end)\n", "			err = nil\n"),
	}, "stored again"},
	{"the rows after the confirmed position of the slot are not contested", []plant.Edit{
		plant.In(takeoverFile, "horizon: server.WALEnd,", "horizon: server.Confirmed,"),
	}, "stored again"},
	{"a row is numbered although the writer has not accepted it", []plant.Edit{
		plant.In(rowsFile, "		p.spans.cancelSpan(rec.Seq)\n		p.tracker.Cancel()\n", "		p.spans.cancelSpan(rec.Seq)\n"),
	}, "have not arrived|has not come"},
	{"unacknowledged records are skipped, not rows", []plant.Edit{
		plant.In(trackerFile, "min(was.last, t.last) - was.first + 1", "min(was.last, t.last) - max(was.first, t.base+1) + 1"),
	}, "twice|more rows than it had"},
	{"any keepalive opens the fence", []plant.Edit{
		plant.In(contactFile, "if silent < c.limit && !c.lost.Load() {", "if silent < c.limit {"),
		plant.In(sessionFile, "		err = s.stream.Expired()\n", "		err = nil\n"),
	}, "heard nothing|after it has lost the slot|the slot was free|have not arrived"}, // or a silent session never ends
	{"the fence stays open when the session has ended", []plant.Edit{ // a relay that has lost the slot writes old records
		plant.In(ownershipFile, "		t.fence.close()\n", ""),
		plant.In(fenceFile, "	return s.Expired()\n", "	return nil\n"),
		plant.In(fenceFile, "	if err := s.clock.check(time.Now()); err != nil {", "	if err := s.clock.check(time.Now()); err != nil && false {"),
	}, "heard nothing|after it has lost the slot"},
	{"a lost source waits for Kafka", []plant.Edit{ // the relay does not reconnect while records are unacknowledged
		plant.In(ownershipFile, "		s.leave(ctx, cmp.Or(", "		for t.tracker.Outstanding() > 0 && t.life.Err() == nil && ctx.Err() == nil {\n			time.Sleep(time.Millisecond)\n		}\n		s.leave(ctx, cmp.Or("),
	}, "the slot was free|waits for the leader"},
	{"without a record a slot that was advanced goes unnoticed", []plant.Edit{
		plant.In(recordFile, "r.store.Read(ctx)\n	r.record.addLost(found)\n", "r.store.Read(ctx)\n	if r.store.values != nil {\n		r.record.addLost(found)\n	}\n"),
		plant.In(recordFile, "r.store.becomeOwner(ctx)\n	r.record.addLost(found)\n", "r.store.becomeOwner(ctx)\n	if r.store.values != nil {\n		r.record.addLost(found)\n	}\n"),
	}, "nobody has noticed|differently"},
	{"with a record a slot that was advanced goes unnoticed", []plant.Edit{
		plant.In(timelineFile, "	case reason != nil:\n", "	case reason == nil:\n		return shared, nil\n	case reason != nil:\n"),
	}, "nobody has noticed|differently"},
	{"the back-off ends with each session", []plant.Edit{ // the relay reconnects in a loop without a pause
		plant.In(relayFile, "if confirmed > before ||", "if confirmed >= before ||"),
	}, "sessions within"},
	{"a key is unparked before its dead letters are sent", []plant.Edit{
		plant.In(releaseFile, "	for range maxRounds {\n", "	for range 0 {\n"),
		plant.In(releaseFile, "	if err := r.sendRound(ctx, pauseTimeout, pauseReadable); err != nil {\n", "	if err := r.cfg.Keys.Unpark(ctx, r.parking.ID); err != nil {\n		return &unparkError{err}\n	}\n	if err := r.sendRound(ctx, pauseTimeout, pauseReadable); err != nil {\n"),
	}, "have not arrived|has not come"},
	{"rows are read while a key is unparked", []plant.Edit{
		plant.In(releaseFile, "	resume, err := r.pausePump(ctx)\n	if err != nil {\n		return err\n", "	resume, err := func() {}, error(nil)\n	if err != nil {\n		return err\n"),
		plant.In(releaseFile, "n > 0 && !r.givenUp() {\n", "n > 0 && !r.givenUp() && false {\n"),
	}, "have not arrived|has not come|out of order"},
	{"a release counts no dead letter as sent", []plant.Edit{
		plant.In(parkingFile, "				p.unreleased--\n", ""),
	}, "still parked"},
	{"a position is stored before the keys that it covers are", []plant.Edit{
		plant.In(writerFile, "	if err := w.parked.Store(ctx, false); err != nil {", "	if err := error(nil); err != nil {"),
	}, "has not come|have not arrived|has lost the parked keys"},
	{"a later relay forgets the parked keys", []plant.Edit{
		plant.In(parkedFile, "k.set.StartOwnership(start, next, k.record)\n", "k.set.StartOwnership(start, next, nil)\n"),
	}, "has not come|have not arrived|still parked"},
	{"a later relay keeps a parked key whose first row it reads again", []plant.Edit{
		plant.In(parkingFile, "p.Confirmed = p.Confirmed || p.confirmedBy(start, next); !p.Confirmed", "p.Confirmed = true; !p.Confirmed"),
	}, "has not come|have not arrived|out of order|still parked|stored again at dead|discards row"},
	{"a rejected dead letter counts as sent", []plant.Edit{
		plant.In(releaseFile, "		done[i] = err == nil\n", "		done[i] = true\n"),
	}, "have not arrived|has not come"},
	{"a refill forgets the transactions that were open", []plant.Edit{
		plant.In(missingFile, "{\"NOT \" + sees(m.Delivered)}", "{\"NOT \" + sees(m.Delivered[:strings.LastIndex(m.Delivered, \":\")+1])}"),
	}, "have not arrived|has not come|are not stored"},
	{"the stream begins before all refilled rows are acknowledged", []plant.Edit{
		plant.In(copyFile, "	if _, err := p.waitForAcks(ctx, nil, 0); err != nil {\n", "	if err := error(nil); err != nil {\n"),
	}, "are not stored"},
}

// lanePlants are bugs for package lane, which TestTwinOverLane finds.
var lanePlants = []mistake{
	{"a response acknowledges one record more than are stored", []plant.Edit{
		plant.In(outcomeFile, "max(0, min(f.stored, len(f.Records)))", "max(0, min(f.stored+1, len(f.Records)))"),
	}, "are not stored|has not come|have not arrived"},
	{"an acknowledged record is sent again", []plant.Edit{
		plant.In(outcomeFile, "	for range f.stored {\n", "	for range f.stored - f.stored/2 {\n"),
	}, "again, which was acknowledged|has not come|more than [0-9]+ events"}, // a record that is sent for ever
	{"a key has two requests outstanding", []plant.Edit{
		plant.In(laneFile, "if l.hash == hash && l.destination == d && l.head != nil &&", "if l.hash == hash && l.destination == d && l.head != nil && l.state != busy &&"),
	}, "has not come"},
	{"a retry leaves out the first record", []plant.Edit{
		plant.In(outcomeFile, "	w.failed(l, err, f.start, now, backoffMax)\n", "	w.failed(l, err, f.start, now, backoffMax)\n	if l.records > 1 {\n		w.freeEntry(l.destination, l.pop())\n	}\n"),
	}, "has not come|have not arrived"},
	{"the fence is not called", []plant.Edit{
		plant.In(runFile, "	if w.checkFence() != nil {\n", "	if false {\n"),
		plant.In(flightFile, "	if err := w.checkFence(); err != nil {\n", "	if err := w.checkFence(); err != nil && false {\n"),
	}, "heard nothing|after it has lost the slot"},
	{"later records of a key do not follow a rejected one", []plant.Edit{
		plant.In(rejectFile, "		w.divertLater(d, rejected.Seq)\n", ""),
	}, "has not come|have not arrived|out of order"},
	{"a key still waits when its destination is no longer missing", []plant.Edit{
		plant.In(absentFile, "	for _, l := range waiting {\n", "	for _, l := range waiting[len(waiting)/2:] {\n"),
	}, "have not arrived"},
}

// The source code contains each text that a plant replaces exactly once.
func TestPlantsFit(t *testing.T) {
	for _, p := range slices.Concat(plants, lanePlants) {
		plant.RequireFit(t, p.name, p.edits)
	}
}

// TestTwin, or TestTwinOverLane, finds each planted bug.
func TestPlants(t *testing.T) {
	need.FullRun(t, "it compiles the relay once for each mistake")
	findPlants(t, "TestTwin", plants)
	findPlants(t, "TestTwinOverLane", lanePlants)
}

// findPlants checks that a test finds each of the mistakes.
func findPlants(t *testing.T, test string, mistakes []mistake) {
	t.Helper()
	for _, p := range mistakes {
		t.Run(p.name, func(t *testing.T) {
			out, err := p.play(t, test)
			if err == nil {
				t.Fatalf("not found within %d seeds", plantSeeds)
			}
			found := violation.FindAllStringSubmatch(out, -1)
			first := firstSeed.FindStringSubmatch(out)
			if !regexp.MustCompile(p.want).MatchString(out) {
				t.Fatalf("%v, and not as wanted:\n%s", err, out)
			}
			if first == nil || len(found) == 0 {
				return // a panic
			}
			seed, _ := strconv.Atoi(found[0][1])
			from, _ := strconv.Atoi(first[1])
			t.Logf("seed %d: %s", seed-from+1, found[0][2])
		})
	}
}

var (
	violation = regexp.MustCompile(`OUTBOX_TEST_SEED=(\d+): (.*)`)
	firstSeed = regexp.MustCompile(`seeds from (\d+):`)
)

// play compiles the relay with the bug and runs a test with it.
func (p mistake) play(t *testing.T, test string) (string, error) {
	t.Helper()
	overlay, binary := plant.Overlay(t, p.edits), filepath.Join(t.TempDir(), "twin.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^"+test+"$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("OUTBOX_TEST_SEEDS=%d", plantSeeds), "OUTBOX_TEST_SEED=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
