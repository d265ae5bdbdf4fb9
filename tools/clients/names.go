package main

// typeNames are the Go names of schemas whose Go name differs from the contract's.
var typeNames = map[string]string{
	"LinkList": "LinkPage", "TagList": "TagPage", "DomainCertificate": "Certificate", "DeliveryAttempt": "Attempt",
	"BulkItemError": "BulkItemFail",
}

// objectNames name the objects that the contract defines inline.
var objectNames = map[string]string{
	"Link.takenDown": "TakenDown", "Video.takenDown": "TakenDown", "Video.error": "VideoError", "CaptionList.data[]": "Caption",
	"LinkStats.days[]": "DayClicks", "LinkStats.referrers[]": "HostClicks", "LinkStats.countries[]": "CountryClicks",
	"LinkStats.devices[]": "DeviceClicks", "LinkStats.rules[]": "RuleClicks", "TagList.data[]": "Tag", "Domain.records[]": "DNSRecord",
	"BulkUpdate.set": "BulkSet", "BulkResults.results[]": "BulkResult", "BulkChanged.results[]": "BulkChange",
	"Account.limits": "AccountLimits", "Account.usage": "AccountUsage", "OperatorAccount.limits": "OwnLimits", "AccountUpdate.limits": "OwnLimitsUpdate",
	"Delivery.event": "DeliveryEvent",
}

// fieldNames are the Go names of fields whose Go name differs from the contract's.
var fieldNames = map[string]string{
	"LinkSummary._id": "UnderscoreID", "VideoSummary._id": "UnderscoreID", "KeyCreated.key": "Secret", "DeviceCode.deviceCode": "Code",
}

// absentIsNotEmpty names query parameters whose empty value says something else than their absence.
var absentIsNotEmpty = map[string]bool{"listEvents.after": true}

// bases are schemas that begin with all fields of another schema. Go embeds the other
// one.
var bases = map[string]string{
	"Link": "LinkSummary", "LinkCreated": "BulkLink", "Video": "VideoSummary", "KeyCreated": "Key", "InvitationCreated": "Invitation",
	"WebhookCreated": "Webhook", "SignInLink": "MemberSignInLink",
}

// large names whole numbers that may need 64 bits.
var large = []string{"home", "notFound", "ended", "clicks", "importedClicks", "total", "views", "storedBytes", "duration", "nextCursor", "min", "max", "links", "videos", "domains", "maxClicks"}

// comments are the doc comments of types, without the name at the start.
var comments = map[string]string{
	"LinkCreate":          "is a link to be. Only URL is needed.",
	"LinkUpdate":          "changes a link; untouched fields stay.",
	"LinkExplained":       "is what a link would decide about a visit.",
	"SlugAvailable":       "says whether a create could take a slug now.",
	"LinkRule":            "leads the visits that meet all its conditions to an address of its own.",
	"LinkRuleWhen":        "has the conditions of a rule: at least one, and all must hold.",
	"LinkSummary":         "is a link in a list.",
	"LinkPage":            "is one page of a list of links.",
	"LinkCreated":         "is the receipt for a new link.",
	"Link":                "is everything known about a link.",
	"LinkUpdated":         "is the receipt for a changed link.",
	"LinkStats":           "are clicks over days.",
	"TakenDown":           "says when and why the operator took a record off the air.",
	"BulkResult":          "is what became of an item: Data when Status is 201, else Error.",
	"BulkLink":            "is a link as a bulk request shows it.",
	"BulkItemFail":        "says why an item was refused.",
	"BulkSet":             "is what a bulk change sets. Tags replaces all tags and cannot be combined with AddTags or RemoveTags.",
	"Domain":              "is a custom host name.",
	"Certificate":         "is the state of a domain's TLS certificate.",
	"DNSRecord":           "is a record to set.",
	"VideoCreate":         "is a video to be. Nothing is needed.",
	"VideoUpdate":         "changes a video; untouched fields stay.",
	"VideoCreated":        "is the receipt for a new video.",
	"VideoSummary":        "is a video in a list.",
	"Video":               "is everything known about a video.",
	"VideoAccess":         "says who may see a video, and how.",
	"VideoError":          "says why a video failed.",
	"Rendition":           "is one size in which a video plays.",
	"Caption":             "is one language of a video's captions.",
	"Account":             "is the account of the key.",
	"AccountLimits":       "are what an account may have; null is no limit.",
	"AccountUsage":        "are the records that an account has now.",
	"Key":                 "is an API key without its secret.",
	"KeyCreate":           "is a key to be.",
	"KeyCreated":          "is a new key with its secret, which is never shown again.",
	"DeviceCode":          "is a question to a person for a key. Show UserCode, open VerificationURL in their browser, and ask for the key every Interval seconds.",
	"Member":              "is a person of the account.",
	"Invitation":          "asks a person to become a member.",
	"SignInLink":          "is a one-time link with which a person signs in to the console.",
	"Event":               "is one change of one record.",
	"Session":             "is a member's session, as its events show it.",
	"EventSignInLink":     "is a one-time link for a member, as its events show it.",
	"Actor":               "is who made a change.",
	"EventPage":           "is a page of a feed.",
	"Webhook":             "is a subscription.",
	"WebhookCreated":      "is a new webhook with its secret, which is never shown again.",
	"WebhookCreate":       "asks for a webhook.",
	"WebhookUpdate":       "changes a webhook; untouched fields stay.",
	"Delivery":            "is one event on its way to one webhook.",
	"Attempt":             "is one attempt of a delivery.",
	"Replay":              "is a time range of events that is sent again.",
	"OperatorAccount":     "is an account as the operator sees it.",
	"Takedown":            "is a link or video that the operator took off the air.",
	"TakedownCreate":      "names what to take down by one of its first three fields.",
	"DayClicks":           "are the clicks of a UTC day.",
	"HostClicks":          "are the clicks that came from a host.",
	"CountryClicks":       "are the clicks of a country.",
	"DeviceClicks":        "are the clicks of a kind of device.",
	"RuleClicks":          "are the clicks that a rule of the link led.",
	"BulkCreate":          "makes links, each item on its own.",
	"BulkUpdate":          "makes one change to links.",
	"BulkDelete":          "deletes links.",
	"BulkChanged":         "says what became of each link.",
	"BulkChange":          "is what became of one link: Data when Status is 200, else Error.",
	"BulkChangeDone":      "is a link that was changed or deleted.",
	"BulkChangeFailed":    "is a link that was not changed.",
	"TagPage":             "is one page of the account's tags.",
	"Tag":                 "is a tag of links or videos.",
	"BulkAllCreated":      "answers a bulk request of which each item was made.",
	"BulkResults":         "answers a bulk request of which an item failed.",
	"BulkItemCreated":     "is an item that was made.",
	"BulkItemFailed":      "is an item that was refused.",
	"DomainUpdate":        "changes a domain's pages; untouched ones stay.",
	"DomainCreate":        "claims a host name.",
	"DomainList":          "is one page of the account's domains.",
	"VideoAccessUpdate":   "replaces who may see a video.",
	"VideoThumbnail":      "chooses the picture of a video.",
	"CaptionList":         "is one page of a video's captions.",
	"VideoUpdated":        "is the receipt for a changed video.",
	"VideoList":           "is one page of a list of videos.",
	"CaptionsStored":      "is the receipt for captions.",
	"KeyRoll":             "asks for the successor of a key.",
	"KeyList":             "is one page of the account's keys.",
	"MemberList":          "is one page of the account's members.",
	"MemberSignInLink":    "is a one-time link for a member.",
	"MemberUpdate":        "changes a member; untouched fields stay.",
	"InvitationCreate":    "invites a person.",
	"InvitationCreated":   "is a new invitation with its link, which is never shown again.",
	"InvitationList":      "is one page of the open invitations.",
	"DeviceCodeCreate":    "begins to ask a person for a key.",
	"DeviceCodeCollect":   "collects the key.",
	"SignInLinkCreate":    "asks for a one-time link.",
	"AccountCreate":       "is an account to be.",
	"AccountUpdate":       "changes an account; untouched fields stay.",
	"OwnLimitsUpdate":     "are exceptions from a plan's limits: untouched ones stay, null is the plan's.",
	"OwnLimits":           "are exceptions from a plan's limits; null is the plan's.",
	"OperatorAccountPage": "is one page of the list of accounts.",
	"FailingWebhook":      "is a webhook whose last attempt failed, as the operator sees it.",
	"FailingWebhookPage":  "is one page of webhooks that fail.",
	"TakedownPage":        "is one page of what is taken down.",
	"WebhookReplay":       "asks for a time range of events again.",
	"WebhookList":         "is one page of the account's webhooks.",
	"DeliveryEvent":       "is the event of a delivery.",
	"DeliveryPage":        "is one page of a webhook's deliveries.",
}
