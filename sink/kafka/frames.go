package kafka

// frames is a sequence of frames in chunks that grow with it, from minChunk to maxChunk; a
// frame is never cut, one larger than maxChunk has a chunk to itself. The zero value is
// empty and holds no memory.
type frames struct {
	chunks  [][]byte
	records int
	payload int // bytes the user has put in
	held    int // capacity of chunks
}

// room extends fs by one frame of the given shape and returns its memory.
func (fs *frames) room(pool *chunkPool, s *shape) []byte {
	n := s.frame()
	last := len(fs.chunks) - 1
	if last < 0 || cap(fs.chunks[last])-len(fs.chunks[last]) < n {
		chunk := pool.get(max(n, min(minChunk<<min(len(fs.chunks), 7), maxChunk)))
		fs.chunks = append(fs.chunks, chunk)
		fs.held += cap(chunk)
		last++
	}
	chunk := fs.chunks[last]
	end := len(chunk) + n
	fs.chunks[last] = chunk[:end]
	fs.records++
	fs.payload += s.payload()
	return chunk[end-n : end]
}

// join puts the frames of more behind those of fs, and leaves more empty.
func (fs *frames) join(more *frames) {
	fs.chunks = append(fs.chunks, more.chunks...)
	fs.records += more.records
	fs.payload += more.payload
	fs.held += more.held
	*more = frames{}
}

// release gives all memory back and leaves fs empty.
func (fs *frames) release(pool *chunkPool) {
	for i, chunk := range fs.chunks {
		pool.put(chunk)
		fs.chunks[i] = nil
	}
	*fs = frames{chunks: fs.chunks[:0]}
}

// appendSeqs appends the sequence of every frame to dst.
func (fs *frames) appendSeqs(dst []uint64) []uint64 {
	for _, chunk := range fs.chunks {
		for len(chunk) > 0 {
			var seq uint64
			seq, chunk = frameSeq(chunk)
			dst = append(dst, seq)
		}
	}
	return dst
}

// all iterates over the frames in order. A frame is valid until its chunk is released.
func (fs *frames) all(yield func(frame) bool) {
	for _, chunk := range fs.chunks {
		for len(chunk) > 0 {
			var f frame
			f, chunk = readFrame(chunk)
			if !yield(f) {
				return
			}
		}
	}
}

// truncate drops the frames from the first with a sequence beyond cut on.
func (fs *frames) truncate(pool *chunkPool, cut uint64) {
	kept := *fs
	*fs = frames{chunks: kept.chunks[:0]}
	cutting := false
	for _, chunk := range kept.chunks {
		end := 0
		for rest := chunk; len(rest) > 0 && !cutting; {
			f, next := readFrame(rest)
			if cutting = f.seq > cut; cutting {
				break
			}
			s := f.shape()
			fs.records++
			fs.payload += s.payload()
			end += len(f.raw)
			rest = next
		}
		if end == 0 {
			pool.put(chunk)
			continue
		}
		fs.held += cap(chunk)
		fs.chunks = append(fs.chunks, chunk[:end])
	}
}
