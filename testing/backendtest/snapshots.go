package backendtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/millstream/millstream/statebackend"
)

// Cases of snapshots and restores.

func snapshotIsFixed(k *kit) {
	b := k.open()
	want := layout()
	k.write(b, want.puts()...)
	s := k.snapshot(b)
	now := maps.Clone(want)
	change := func(round int) {
		for key := range want {
			switch (len(key) + round) % 3 {
			case 0:
				k.write(b, del(key))
				delete(now, key)
			case 1:
				k.write(b, put(key, fmt.Sprint("changed", round)), put(key+"new", "n"))
				now[key], now[key+"new"] = fmt.Sprint("changed", round), "n"
			}
		}
	}
	change(0) // before Persist
	k.store.begin()
	type result struct {
		handle statebackend.Handle
		err    error
	}
	done := make(chan result)
	go func() {
		h, err := s.Persist(k.Context(), k.store)
		done <- result{h, err}
	}()
	change(1) // beside Persist
	r := <-done
	k.ok("persist", r.err)
	h := k.reread(r.handle)
	k.ok("release", s.Release())
	k.holds("the backend after release", b, now)
	k.restores("restored", h, want)
	k.close(b)
}

func snapshotHoldsBatch(k *kit) {
	b := k.open()
	want := model{}
	for i := range 3000 {
		want[fmt.Sprintf("%05d", i)] = strings.Repeat("v", 30)
	}
	k.write(b, append(want.puts(), put("last", "1"))...)
	want["last"] = "1"
	k.restores("restored", k.base(b), want)
	k.write(b, delRange("00100", "02900"), del("last"))
	want.deleteRange("00100", "02900")
	delete(want, "last")
	k.restores("restored after deletes", k.base(b), want)
	k.close(b)
}

func snapshotsSideBySide(k *kit) {
	b := k.open()
	var snapshots []statebackend.Snapshot
	var wants []model
	now := model{}
	for i := range 4 {
		key := fmt.Sprint(i)
		k.write(b, put(key, key), put("all", key))
		now[key], now["all"] = key, key
		snapshots, wants = append(snapshots, k.snapshot(b)), append(wants, maps.Clone(now))
	}
	k.ok("release unpersisted", snapshots[1].Release())
	handles := map[int]statebackend.Handle{2: k.persist(snapshots[2])}
	k.ok("release", snapshots[2].Release())
	k.write(b, delRange("", last))
	k.close(b)
	for _, i := range []int{3, 0} {
		handles[i] = k.persist(snapshots[i])
		k.ok("release", snapshots[i].Release())
	}
	for i, h := range handles {
		k.restores(fmt.Sprint("snapshot ", i), h, wants[i])
	}
}

func persistAgain(k *kit) {
	b := k.open()
	k.write(b, put("a", "1"))
	s := k.snapshot(b)
	k.write(b, put("a", "2"))
	for fail := 1; ; fail++ {
		k.store.begin()
		k.store.failAfter = fail
		h, err := s.Persist(k.Context(), k.store)
		if err == nil {
			if fail == 1 {
				k.Fatalf("no upload failed although the first was made to")
			}
			k.store.failAfter = 0
			k.restores("restored", k.reread(h), model{"a": "1"})
			break
		}
		if !errors.Is(err, errUpload) {
			k.Fatalf("persist: %v, want the uploader's error in it", err)
		}
		if fail > 1000 {
			k.Fatalf("persist makes more than %d uploads of one entry", fail)
		}
	}
	k.ok("release", s.Release())
	k.close(b)
}

func sharesFiles(k *kit) {
	b := k.open()
	want := model{}
	for i := range 20000 {
		want[fmt.Sprintf("%08d", i)] = fmt.Sprintf("%016x", uint64(i)*0x9e3779b97f4a7c15)
	}
	k.write(b, want.puts()...)
	first := k.base(b)
	all := k.store.bytes
	k.store.complete(first)
	k.write(b, put("00000007", "changed"))
	want["00000007"] = "changed"
	second := k.base(b)
	if k.store.bytes > all/2 {
		k.Fatalf("after one entry has changed, %d bytes are uploaded; the whole state is %d", k.store.bytes, all)
	}
	k.store.complete(second)
	restored := k.open(second)
	k.holds("restored", restored, want)

	// A restored backend goes on sharing, and gives its new files new identities.
	k.write(restored, put("00000008", "changed"))
	want["00000008"] = "changed"
	third := k.base(restored)
	if k.store.bytes > all/2 {
		k.Fatalf("after a restore and one change, %d bytes are uploaded; the whole state is %d", k.store.bytes, all)
	}
	k.restores("restored again", third, want)

	// So does a second one, restored from the same handle in another directory, whose file numbers are the same.
	twin := k.open(second)
	k.write(twin, put("00000009", "changed differently"))
	k.base(twin)
	k.close(twin)
	k.close(restored)
	k.close(b)
}

func incompleteBase(k *kit) {
	b := k.open()
	k.write(b, layout().puts()...)
	k.base(b) // never completed
	k.write(b, put("z", "1"))
	h := k.base(b) // reread checks its references
	if len(h.Files) == 0 {
		k.Fatalf("the second base has no files")
	}
	k.close(b)
}

func restoreExact(k *kit) {
	b := k.open()
	want := layout()
	k.write(b, want.puts()...)
	h := k.base(b)
	k.close(b)
	for i := range 2 { // the second time from the same handle: restoring changes nothing in storage
		b := k.open(h)
		k.holds(fmt.Sprint("restored ", i), b, want)
		changed := maps.Clone(want)
		k.write(b, put("k\x00\x00\x01new", "1"), delRange("w", "x"))
		changed["k\x00\x00\x01new"] = "1"
		changed.deleteRange("w", "x")
		k.holds("changed", b, changed)
		again := k.base(b)
		k.close(b)
		c := k.open(again)
		k.holds("restored from a restored backend", c, changed)
		k.close(c)
	}
}

func restoreEmpty(k *kit) {
	b := k.open()
	h := k.base(b)
	k.write(b, put("a", "1"), del("a"))
	emptied := k.base(b)
	k.close(b)
	for _, h := range []statebackend.Handle{h, emptied} {
		for _, own := range []statebackend.KeyGroupRange{{End: groups}, {First: 3, End: 5}} {
			b := k.openConfig(k.config(own, h))
			k.holds("restored", b, model{})
			k.write(b, put("b", "2"))
			k.holds("written", b, model{"b": "2"})
			k.close(b)
		}
	}
}

func restoreDeleted(k *kit) {
	b := k.open()
	k.write(b, put("a", "1"), put("b", "2"), put("c", "3"), put("d", "4"))
	k.store.complete(k.base(b))
	k.write(b, del("a"), delRange("b", "d"))
	h := k.base(b)
	k.store.complete(h)
	k.restores("restored", h, model{"d": "4"})
	k.write(b, put("b", "again"))
	k.restores("restored", k.base(b), model{"b": "again", "d": "4"})
	k.close(b)
}

func restoreFilters(k *kit) {
	b := k.open()
	want := layout()
	k.write(b, want.puts()...)
	h := k.base(b)
	k.close(b)
	for _, parallelism := range []int{1, 2, 3, groups} {
		for subtask := range parallelism {
			own := statebackend.RangeOf(subtask, parallelism, groups)
			b := k.openConfig(k.config(own, h))
			k.holds(fmt.Sprintf("subtask %d of %d, key groups %v", subtask, parallelism, own), b, want.own(own))
			// What was not restored stays away from the next base too.
			if again := k.base(b); parallelism == 3 {
				if again.KeyGroups != own {
					k.Fatalf("the handle says key groups %v, want %v", again.KeyGroups, own)
				}
				k.restores("restored with all key groups", again, want.own(own))
			}
			k.close(b)
		}
	}
}

func restoreJoins(k *kit) {
	want := layout()
	var handles []statebackend.Handle
	for subtask := range 3 {
		own := statebackend.RangeOf(subtask, 3, groups)
		b := k.openConfig(k.config(own))
		k.write(b, want.own(own).puts()...)
		if subtask == 1 { // a deleted entry must not come back through another handle
			k.write(b, put("k\x00\x00\x07gone", "1"))
			k.base(b)
			k.write(b, del("k\x00\x00\x07gone"))
		}
		handles = append(handles, k.base(b))
		k.close(b)
	}
	b := k.open(handles...)
	k.holds("three handles in one", b, want)
	k.close(b)
	for subtask := range 2 {
		own := statebackend.RangeOf(subtask, 2, groups)
		var from []statebackend.Handle
		for _, h := range handles {
			if h.KeyGroups.Overlaps(own) {
				from = append(from, h)
			}
		}
		b := k.openConfig(k.config(own, from...))
		k.holds(fmt.Sprintf("subtask %d of 2", subtask), b, want.own(own))
		again := k.openConfig(k.config(own, k.base(b)))
		k.holds("its own base", again, want.own(own))
		k.close(again)
		k.close(b)
	}
	if _, err := k.driver.Open(k.Context(), k.config(statebackend.AllKeyGroups(groups), handles[0], handles[0])); err == nil {
		k.Fatalf("one handle is restored twice at once")
	}
}

func restoreUndividable(k *kit) {
	b := k.open()
	k.write(b, put("no key group", "1"))
	h := k.base(b)
	k.close(b)
	b, err := k.driver.Open(k.Context(), k.config(statebackend.KeyGroupRange{End: 1}, h))
	if err == nil {
		k.close(b)
		k.Fatalf("an entry without key group is restored or dropped in silence")
	}
}

func restoreMismatch(k *kit) {
	b := k.open()
	k.write(b, put("a", "1"))
	h := k.base(b)
	k.close(b)
	if len(h.Files) == 0 {
		k.Fatalf("the base of an entry has no files")
	}
	for want, change := range map[string]func(h *statebackend.Handle){
		"another": func(h *statebackend.Handle) { h.Driver = "another" },
		"version": func(h *statebackend.Handle) { h.Version++ },
		"path":    func(h *statebackend.Handle) { h.Files[0].Name = "../escaped" },
	} {
		changed := h
		changed.Files = append([]statebackend.File(nil), h.Files...)
		change(&changed)
		if _, err := k.driver.Open(k.Context(), k.config(statebackend.AllKeyGroups(groups), changed)); err == nil {
			k.Fatalf("a handle with %s changed is restored", want)
		}
	}
}

func restoreDamaged(k *kit) {
	b := k.open()
	k.write(b, layout().puts()...)
	h := k.base(b)
	k.close(b)
	for _, f := range h.Files {
		good := k.store.content[f.Ref.Object]
		flipped := append([]byte(nil), good...)
		flipped[len(good)/2] ^= 1
		for what, bad := range map[string][]byte{
			"truncated": good[:len(good)-1], "empty": {}, "extended": append(append([]byte(nil), good...), 0), "changed": flipped, "missing": nil,
		} {
			if k.store.content[f.Ref.Object] = bad; bad == nil {
				delete(k.store.content, f.Ref.Object)
			}
			for _, own := range []statebackend.KeyGroupRange{{End: groups}, {End: 2}} {
				b, err := k.driver.Open(k.Context(), k.config(own, h))
				if err == nil {
					k.close(b)
					k.Fatalf("restored although %s is %s", f.Name, what)
				}
				if !strings.Contains(err.Error(), f.Name) {
					k.Fatalf("%s is %s, but the error does not name it: %v", f.Name, what, err)
				}
			}
		}
		k.store.content[f.Ref.Object] = good
	}
	k.close(k.open(h))
}

func cancelled(k *kit) {
	b := k.open()
	k.write(b, put("a", "1"))
	s := k.snapshot(b)
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	k.store.begin()
	if _, err := s.Persist(ctx, k.store); !errors.Is(err, context.Canceled) {
		k.Fatalf("persist: error %v, want context.Canceled in it", err)
	}
	h := k.persist(s)
	k.ok("release", s.Release())
	k.close(b)
	if _, err := k.driver.Open(ctx, k.config(statebackend.AllKeyGroups(groups), h)); !errors.Is(err, context.Canceled) {
		k.Fatalf("restore: error %v, want context.Canceled in it", err)
	}
}
