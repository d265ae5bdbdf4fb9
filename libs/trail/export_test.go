package trail

import "time"

func init() { readPause = time.Millisecond }

// Settle returns when the log neither writes nor removes anything.
func (l *Log) Settle() { l.running.Wait() }
