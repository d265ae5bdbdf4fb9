package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mounts lists the pods that have a container with a Secret, either mounted as files or in its
// environment.
func mounts(all []pod, secret string) (owners []string) {
	for _, p := range all {
		if slices.Contains(references(p), reference{"Secret", secret}) {
			owners = append(owners, p.owner)
		}
	}
	return owners
}

func containerOf(t *testing.T, all []pod, owner, name string) object {
	t.Helper()
	for _, p := range all {
		for _, c := range p.containers {
			if p.owner == owner && c["name"] == name {
				return c
			}
		}
	}
	t.Fatalf("%s does not have a container named %s", owner, name)
	return nil
}

const (
	backupJob  = "CronJob try-linkreel-backup"
	localcloud = "StatefulSet try-linkreel-localcloud"
)

// firstBackup matches the Job for the first backup.
var firstBackup = regexp.MustCompile(`^Job try-linkreel-backup-[0-9a-f]{8}$`)

// Only the backup jobs and localcloud have the token, and only the jobs can reach the port. Without
// backup.enabled, localcloud does not open this port.
func TestOnlyTheBackupJobReachesBackups(t *testing.T) {
	t.Parallel()
	plain, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range plain {
		if o.kind() == "CronJob" {
			t.Errorf("%s exists without backup.enabled", o.name())
		}
		if text := fmt.Sprint(o); strings.Contains(text, "8087") || strings.Contains(text, "--backup-addr") {
			t.Errorf("%s %s opens the backup port without backup.enabled", o.kind(), o.name())
		}
	}
	objects, err := render(t, "--set", "backup.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	all := pods(objects)
	var jobs []string
	for _, p := range all {
		if p.owner == backupJob || firstBackup.MatchString(p.owner) {
			jobs = append(jobs, p.owner)
		}
	}
	if len(jobs) != 2 {
		t.Fatalf("backups are made by %v, want a CronJob, and a Job for the first backup", jobs)
	}
	got, want := mounts(all, "try-linkreel-backup"), append(slices.Clone(jobs), localcloud)
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("the backup token is in %v, want %v", got, want)
	}
	args := fmt.Sprint(containerOf(t, all, localcloud, "localcloud")["args"])
	if !strings.Contains(args, "--backup-addr=:8087 --backup-token-file=/etc/linkreel-backup/token") {
		t.Errorf("localcloud runs with the arguments %s, want the backup address and the token file", args)
	}
	target := podOf(objects, all, "try-linkreel-localcloud", 8087)
	if target == nil {
		t.Fatal("none of the Services have the backup port")
	}
	policies := map[string]object{}
	for _, o := range objects {
		if o.kind() == "NetworkPolicy" {
			for _, p := range all {
				if selects(mapAt(o, "spec", "podSelector", "matchLabels"), p.labels) {
					policies[p.owner] = mapAt(o, "spec")
				}
			}
		}
	}
	for _, p := range all {
		from := slices.ContainsFunc(listAt(policies[localcloud], "ingress"), func(rule object) bool { return allowsFrom(rule, 8087, *target, p) })
		to := policies[p.owner] == nil || slices.ContainsFunc(listAt(policies[p.owner], "egress"), func(rule object) bool { return allows(rule, "to", 8087, target) })
		if (from && to) != slices.Contains(jobs, p.owner) {
			t.Errorf("%s can reach the backup port: %v, want only the backup jobs", p.owner, from && to)
		}
	}
	job := policies[backupJob]
	for _, port := range []int{8083, 8085, 8086} {
		if slices.ContainsFunc(listAt(job, "egress"), func(rule object) bool { return allows(rule, "to", port, target) }) {
			t.Errorf("the backup job can call port %d on localcloud, want only the backup port", port)
		}
	}
	if ingress, ok := job["ingress"].([]any); !ok || len(ingress) > 0 {
		t.Errorf("other pods can call the backup job: %v", job["ingress"])
	}
}

// Backups run one at a time and have a deadline. They are suspended while a restore is enabled.
func TestBackupsRunOneAtATime(t *testing.T) {
	t.Parallel()
	for _, restoring := range []bool{false, true} {
		objects, err := render(t, "--set", fmt.Sprintf("backup.enabled=true,restore.enabled=%v,backup.deadlineSeconds=1234", restoring))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.kind() != "CronJob" {
				continue
			}
			job := mapAt(o, "spec", "jobTemplate", "spec")
			if o.at("spec", "concurrencyPolicy") != "Forbid" || o.at("spec", "timeZone") != "Etc/UTC" || job["activeDeadlineSeconds"] != 1234 || o.at("spec", "suspend") != restoring {
				t.Errorf("with restore.enabled=%v, the CronJob does not run one backup at a time in UTC with a deadline, or its suspension is wrong: %v", restoring, o)
			}
		}
	}
}

// TestTheFirstBackupIsMadeAtOnce compares the Job for the first backup with the CronJob. A Job is
// immutable, so the Job for a different image must have a different name. A restore does not make a
// first backup.
func TestTheFirstBackupIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for values, want := range map[string]bool{
		"backup.enabled=true":                      true,
		"backup.enabled=true,image.tag=another":    true,
		"backup.enabled=true,restore.enabled=true": false,
	} {
		objects, err := render(t, "--set", values)
		if err != nil {
			t.Fatal(err)
		}
		all := pods(objects)
		at := slices.IndexFunc(all, func(p pod) bool { return firstBackup.MatchString(p.owner) })
		if (at >= 0) != want {
			t.Errorf("with %s, the Job for the first backup exists: %v, want %v", values, at >= 0, want)
		}
		if at < 0 {
			continue
		}
		names[all[at].owner] = true
		got, want := containerOf(t, all, all[at].owner, "backup"), containerOf(t, all, backupJob, "backup")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the first backup's container differs from the CronJob's (-CronJob +Job):\n%s", diff)
		}
	}
	if len(names) != 2 {
		t.Errorf("the Jobs for two images have the names %v, want two different names", names)
	}
}

// TestARestoreEndsBackups compares the first step in a restore with the labels on the chart's
// CronJob and on every Job that makes a backup. A backup that is still running would copy
// localcloud during the restore.
func TestARestoreEndsBackups(t *testing.T) {
	t.Parallel()
	objects, err := renderAs(t, "linkreel", "linkreel", "--set", "backup.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(read(t, "../../docs/recovery.md")), "\n### Restore a cluster\n")
	steps, _, _ = strings.Cut(steps, "\n2. ")
	command := regexp.MustCompile(`delete cronjob,job -l (\S+) --cascade=foreground`)
	shown := command.FindStringSubmatch(steps)
	if shown == nil {
		t.Fatalf("the first step does not delete the backups' jobs:\n%s", steps)
	}
	wanted := object{}
	for label := range strings.SplitSeq(shown[1], ",") {
		name, value, _ := strings.Cut(label, "=")
		wanted[name] = value
	}
	var selected []string
	for _, o := range objects {
		if o.kind() != "CronJob" && o.kind() != "Job" {
			continue
		}
		if selects(wanted, mapAt(o, "metadata", "labels")) {
			selected = append(selected, o.kind())
		}
		if o.kind() == "CronJob" && !selects(wanted, mapAt(o, "spec", "jobTemplate", "metadata", "labels")) {
			t.Errorf("the command does not delete the Jobs for %s", o.name())
		}
	}
	if slices.Sort(selected); !slices.Equal(selected, []string{"CronJob", "Job"}) {
		t.Errorf("the command deletes these objects in the chart: %v; want its CronJob and the Job for the first backup", selected)
	}
	script := command.FindString(strings.ReplaceAll(string(read(t, "test.sh")), "$release", "linkreel"))
	if script != shown[0] {
		t.Errorf("the backup case in test.sh runs %q, want %q", script, shown[0])
	}
}

// The backup case in test.sh checks an encrypted backup with the command from docs/recovery.md, so
// that command gets tested too.
func TestTheCheckOfAnEncryptedBackupIsProven(t *testing.T) {
	t.Parallel()
	words := func(file string) string {
		return strings.Join(strings.Fields(strings.ReplaceAll(string(read(t, file)), "$release", "linkreel")), " ")
	}
	shown := regexp.MustCompile(`jq '[^']*--identity=[^']*'`).FindString(words("../../docs/recovery.md"))
	if shown == "" {
		t.Fatal("docs/recovery.md does not show how to check an encrypted backup")
	}
	if !strings.Contains(words("test.sh"), shown) {
		t.Errorf("the backup case in test.sh does not run %q", shown)
	}
}

// Only a restore gets the keys that it checks. It must not be able to write to the backups.
func TestOnlyARestoreSeesTheKeys(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{{"--set", "backup.enabled=true"}, {"--set", "backup.enabled=true,restore.enabled=true"}, {"--values", chart + "/ci/everything.yaml"}} {
		objects, err := render(t, values...)
		if err != nil {
			t.Fatal(err)
		}
		all := pods(objects)
		running := fmt.Sprint(containerOf(t, all, localcloud, "localcloud"))
		for _, word := range []string{"webhook-secret-key", "CERTIFICATE_KEY", "identity", "/backups"} {
			if strings.Contains(running, word) {
				t.Errorf("%v: the localcloud container gets %s", values, word)
			}
		}
		var restore object
		for _, p := range all {
			for _, c := range p.containers {
				if p.owner == localcloud && c["name"] == "restore" {
					restore = c
				}
			}
		}
		if strings.Contains(values[1], "restore") != (restore != nil) && values[0] == "--set" {
			t.Fatalf("%v: the restore container is %v", values, restore)
		}
		for _, m := range listAt(restore, "volumeMounts") {
			if path := fmt.Sprint(m["mountPath"]); path != "/data" && path != "/objects" && m["readOnly"] != true {
				t.Errorf("%v: the restore can write to %s", values, path)
			}
		}
	}
}

// TestARestoredDatabaseIsTreatedBeforePodsUseIt checks a Job in the chart on Google Cloud. With
// restore.enabled, the Job runs before each upgrade, with auth's identity and settings. Otherwise
// it does not exist.
func TestARestoredDatabaseIsTreatedBeforePodsUseIt(t *testing.T) {
	t.Parallel()
	google := []string{"--values", chart + "/ci/google.yaml", "--set", "auth.env.LINKREEL_AUDIT_DIR=/audit"}
	for _, restoring := range []bool{false, true} {
		args := google
		if restoring {
			args = append(slices.Clone(google), "--set", "restore.enabled=true,restore.since=2026-11-26T12:00:00Z,cloud.google.database=restored")
		}
		objects, err := render(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(objects, func(o object) bool { return o.name() == "try-linkreel-restore" })
		if (at >= 0) != restoring {
			t.Errorf("with restore.enabled=%[1]v, the Job exists: %[2]v, want %[1]v", restoring, at >= 0)
		}
		if at < 0 {
			continue
		}
		if hook := objects[at].at("metadata", "annotations").(map[string]any)["helm.sh/hook"]; hook != "pre-upgrade" {
			t.Errorf("the Job's hook is %v, want pre-upgrade", hook)
		}
		all := pods(objects)
		job, auth := containerOf(t, all, "Job try-linkreel-restore", "restore"), containerOf(t, all, "Deployment try-linkreel-auth", "auth")
		if got := fmt.Sprint(job["args"]); got != "[restore --since=2026-11-26T12:00:00Z]" {
			t.Errorf("the Job runs with the arguments %s", got)
		}
		for _, field := range []string{"image", "env", "volumeMounts", "securityContext"} {
			if fmt.Sprint(job[field]) != fmt.Sprint(auth[field]) {
				t.Errorf("the Job's %s is %v, want auth's %v", field, job[field], auth[field])
			}
		}
		if text := fmt.Sprint(job["env"]); !strings.Contains(text, "name:LINKREEL_FIRESTORE_DATABASE value:restored") || !strings.Contains(text, "LINKREEL_AUDIT_DIR") {
			t.Errorf("the Job does not use the restored database and the trail: %s", text)
		}
	}
}
